//go:build integration

package app_test

import "ramet.dev/ramet/internal/app"

// What differs between the drivers for the tests.

func onGVisor() bool { return app.DriverOfTests() == "gvisor" }

// dropCaches is a shell command, and dropCachesPython a statement, after which a guest reads from its disk again. gVisor has no cache
// of its own.
func dropCaches() string {
	if onGVisor() {
		return "true"
	}
	return "echo 3 > /proc/sys/vm/drop_caches"
}

func dropCachesPython() string {
	if onGVisor() {
		return "None"
	}
	return `open("/proc/sys/vm/drop_caches", "w").write("3")`
}
