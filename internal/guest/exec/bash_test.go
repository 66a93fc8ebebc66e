package exec

import (
	"strings"
	"testing"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

func shellContext(t *testing.T) *fixture {
	f := newFixture(t)
	f.createContext("sh", "bash", t.TempDir())
	return f
}

func TestShellKeepsWhatAShellKeeps(t *testing.T) {
	f := shellContext(t)
	f.inOK("sh", "a=1; export B=two; f() { echo \"f $1\"; }; declare -A m=([k]=v); cd /tmp; shopt -s extglob; alias ll='echo listed'; set -- p q")
	if out := f.inOK("sh", `echo "$a $B $(f x) ${m[k]} $PWD $1$2 $0"; [[ abc == +([a-c]) ]] && env | grep ^B=`); out != "1 two f x v /tmp pq bash\nB=two\n" {
		t.Errorf("%q", out)
	}
}

func TestShellExitCodesAndErrors(t *testing.T) {
	f := shellContext(t)
	for _, c := range []struct {
		code   string
		exit   int32
		stderr string
	}{
		{"false", 1, ""},
		{"(exit 42)", 42, ""},
		{"return 5", 5, ""},
		{"no-such-program", 127, "bash: line 1: no-such-program: command not found\n"},
		{"\n\nno-such-program", 127, "bash: line 3: no-such-program: command not found\n"},
		{"kill -9 $BASHPID & wait $!", 137, ""},
		{"if", 2, "syntax error"},
		{"set -o pipefail; false | true", 1, ""},
		{"true", 0, ""},
	} {
		tr := f.in("sh", c.code)
		if tr.exit.GetCode() != c.exit || tr.exit.GetReason() != agentv1.Reason_EXITED || !strings.Contains(tr.stderr, c.stderr) {
			t.Errorf("%s: %v %q", c.code, tr.exit, tr.stderr)
		}
	}
	f.inOK("sh", "x=1")
	if out := f.inOK("sh", "echo $x"); out != "1\n" {
		t.Errorf("the shell did not live on: %q", out)
	}
}

func TestShellOptionsStayAndDoNotDisturbIt(t *testing.T) {
	f := shellContext(t)
	f.inOK("sh", "set -u; set -f; IFS=,; read() { echo mine; }; printf() { :; }; set -x")
	tr := f.in("sh", "echo *; a=b,c; echo $a; read")
	if tr.stdout != "*\nb c\nmine\n" || strings.Contains(tr.stderr, "__ramet") {
		t.Errorf("%q %q", tr.stdout, tr.stderr)
	}
	tr = f.in("sh", "set +x; echo $unset; echo no")
	if tr.exit.GetCode() == 0 || strings.Contains(tr.stdout, "no") {
		t.Errorf("set -u: %v %q %q", tr.exit, tr.stdout, tr.stderr)
	}
	f.in("sh", "set -e")
	tr = f.in("sh", "false; echo no")
	if tr.exit.GetCode() != 1 || tr.stdout != "" {
		t.Errorf("set -e: %v %q", tr.exit, tr.stdout)
	}
}

func TestShellInterruptEndsWhateverItIsIn(t *testing.T) {
	f := shellContext(t)
	f.inOK("sh", "x=1")
	for _, code := range []string{
		"sleep 100; x=2",
		"g() { sleep 100; x=2; }; f() { g; x=2; }; f; x=2",
		"for i in 1 2 3; do for j in 1 2 3; do sleep 100; done; done; x=2",
		"while sleep 0.01; do :; done; x=2",
		"cat <(sleep 100) | cat; x=2",
		"set -e; f() { while :; do sleep 0.01; done; }; f; x=2",
		"eval 'eval \"while :; do :; done\"'; x=2",
	} {
		tr := f.run(&agentv1.RunRequest{Context: "sh", Code: code, TimeoutMillis: 200})
		if tr.exit.GetReason() != agentv1.Reason_TIMEOUT || tr.exit.GetCode() != 130 {
			t.Errorf("%s: %v %q", code, tr.exit, tr.stderr)
		}
		if out := f.inOK("sh", "set +e; echo $x"); out != "1\n" {
			t.Errorf("%s: x is %q", code, out)
		}
	}
}

func TestShellCodeOfManyMegabytes(t *testing.T) {
	f := shellContext(t)
	f.inOK("sh", "x='"+strings.Repeat("ab\n", 1<<20)+"'")
	if out := f.inOK("sh", "echo ${#x}"); out != "3145728\n" {
		t.Errorf("%q", out)
	}
}

func TestShellChildrenDoNotHoldItsConnection(t *testing.T) {
	f := shellContext(t)
	if out := f.inOK("sh", "ls /proc/self/fd | sort -n | tail -1"); strings.TrimSpace(out) == "500" {
		t.Errorf("descriptor %s is open in a child", out)
	}
	f.inOK("sh", "exec 3>&1 4>&1; exec 2>/dev/null")
	if out := f.inOK("sh", "echo three >&3; echo four >&4; echo gone >&2"); out != "three\nfour\n" {
		t.Errorf("%q", out)
	}
}

func TestShellIsReseeded(t *testing.T) {
	f := shellContext(t)
	f.inOK("sh", "RANDOM=7; : $RANDOM")
	f.renew(Renewal{Reseed: true})
	drawn := f.inOK("sh", "echo $RANDOM $RANDOM $RANDOM $RANDOM")
	f.inOK("sh", "RANDOM=7; : $RANDOM")
	if fixed := f.inOK("sh", "echo $RANDOM $RANDOM $RANDOM $RANDOM"); fixed == drawn {
		t.Errorf("drawn %q as the seed gives", drawn)
	}
}

func TestQuoteBashIsReversedByBash(t *testing.T) {
	f := newFixture(t)
	text := "it's \"q\" \\n \\ $x `y` \n\r\t\x01\x7f ä漢 end"
	tr := f.bash("printf %s " + quoteBash(text))
	if tr.stdout != text || strings.ContainsAny(quoteBash(text), "\n\r") {
		t.Errorf("%q", tr.stdout)
	}
}
