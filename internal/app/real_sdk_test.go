//go:build integration

package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The Python SDK on real machines: sdk/python/tests/real_machines.py. RAMET_TEST_SDK_PYTHON is the Python of a virtual
// environment in which its tests can run, as 'sdk/python/tools/venv' makes it.
func TestRealPythonSDK(t *testing.T) {
	python := os.Getenv("RAMET_TEST_SDK_PYTHON")
	if python == "" {
		t.Fatal("RAMET_TEST_SDK_PYTHON is not set; 'make test-integration' sets it")
	}
	s := realServer(t)
	sdk, err := filepath.Abs("../../sdk/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-m", "pytest", "-v", "--noconftest", "-p", "no:cacheprovider", "tests/real_machines.py")
	cmd.Dir = sdk
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(sdk, "src"), "RAMET_URL="+s.url, "RAMET_API_KEY="+s.key)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
