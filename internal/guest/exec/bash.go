package exec

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

// bashStart runs rounds from a directory where their file has the name "bash": so errors of
// the code begin with that.
const bashStart = `__ramet_dir=$1; shift
source /proc/self/fd/4
while :; do
  __ramet_here=$PWD __ramet_last=${OLDPWD-} __ramet_path=-u
  if builtin shopt -q sourcepath; then __ramet_path=-s; fi
  builtin shopt -u sourcepath
  builtin cd -- "$__ramet_dir" || exit 1
  builtin source bash
  { __ramet_status=$? __ramet_busy= __ramet_flags=$-; builtin trap - DEBUG; builtin set +euxvfT; } 2>/dev/null
done`

// bashRound is one line, as lines of the code are counted from the one where eval is. A
// call leaves it by an interrupt or by return; then comes the next round.
const bashRound = `__ramet_round; while __ramet_next; do ` +
	`builtin eval "builtin set +n ${__ramet_flags:+-$__ramet_flags};$__ramet_code" 500>&-; ` +
	`{ __ramet_status=$? __ramet_busy= __ramet_flags=$-; builtin set +euxvfT; } 2>/dev/null; ` +
	`__ramet_end "$__ramet_status"; done
`

// inlineCode is the most bytes of code that are written to the shell's socket. It reads
// that byte by byte, so longer code comes in a file.
const inlineCode = 16 << 10

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkBashRun refuses what a shell cannot have in a variable.
func checkBashRun(req *agentv1.RunRequest) error {
	if strings.ContainsRune(req.GetCode(), 0) {
		return invalid("the code contains a NUL byte")
	}
	for name := range req.GetEnv() {
		if !shellName.MatchString(name) {
			return invalid("environment variable %q cannot be set in a shell that goes on; its name is not one of a variable", name)
		}
	}
	return nil
}

// bashLine encodes a request as one line of assignments and commands for repl.bash.
func bashLine(r *request) ([]byte, *os.File, error) {
	var b strings.Builder
	var file *os.File
	switch r.Op {
	case "run":
		problem, err := json.Marshal("cannot change to the directory " + r.Cwd)
		if err != nil {
			return nil, nil, fmt.Errorf("encode run: %w", err)
		}
		fmt.Fprintf(&b, "__ramet_id=%d __ramet_cwd=%s __ramet_problem=%s __ramet_env=(", r.ID, quoteBash(r.Cwd), quoteBash(string(problem)))
		for name, value := range r.Env {
			fmt.Fprintf(&b, "%s %s ", name, quoteBash(value))
		}
		b.WriteString(") ")
		if len(r.Code) <= inlineCode {
			b.WriteString("__ramet_code=" + quoteBash(r.Code))
			break
		}
		if file, err = memoryFile("code", r.Code); err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(&b, "; builtin mapfile -d '' -t __ramet_part </proc/%d/fd/%d; __ramet_code=${__ramet_part[0]-}; builtin unset __ramet_part",
			os.Getpid(), file.Fd())
	case "env":
		for name, value := range r.Set {
			if shellName.MatchString(name) {
				fmt.Fprintf(&b, "builtin export %s=%s; ", name, quoteBash(value))
			}
		}
		for _, name := range r.Unset {
			if shellName.MatchString(name) {
				fmt.Fprintf(&b, "builtin unset %s; ", name)
			}
		}
		b.WriteString(":")
	case "reseed":
		b.WriteString("RANDOM=$SRANDOM")
	default:
		b.WriteString(":")
	}
	b.WriteByte('\n')
	return []byte(b.String()), file, nil
}

// quoteBash quotes text as one word of a line.
func quoteBash(text string) string {
	var b strings.Builder
	b.WriteString("$'")
	for n := range len(text) {
		switch c := text[n]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString("'")
	return b.String()
}

// openBash puts the file of rounds into a directory of its own.
func (s *Service) openBash() error {
	dir, err := os.MkdirTemp(s.cfg.SpoolDir, "shell-")
	if err != nil {
		return fmt.Errorf("make the shell's directory: %w", err)
	}
	s.bashDir = dir
	if err := os.WriteFile(filepath.Join(dir, "bash"), []byte(bashRound), 0o644); err != nil {
		return fmt.Errorf("write the shell's script: %w", err)
	}
	return nil
}
