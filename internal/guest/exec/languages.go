package exec

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	agentv1 "ramet.dev/ramet/api/agent/v1"
)

//go:embed repl.py
var pythonScript string

//go:embed results.py
var resultsScript string

//go:embed repl.js
var nodeScript string

//go:embed repl.bash
var bashScript string

// typescript is a language of JavaScript contexts.
const typescript = "typescript"

// language is what contexts of one language have in common.
type language struct {
	name  string
	title string // of its interpreter, in a sentence
	// lost is the first line that the call after a restart finds on stderr.
	lost   string
	script string
	more   string // a second script, at descriptor 5; empty: none
	// command returns the program, which finds the socket at descriptor 3 and the script at 4.
	command func(*Service) interpreterCommand
	// encode writes a request for the socket. The file, which may be nil, must be open until the call has ended.
	encode func(*request) ([]byte, *os.File, error)
	// checkRun refuses what the interpreter could not do.
	checkRun func(*agentv1.RunRequest) error
	memory   int64 // bytes that its interpreter takes at least
	pokes    bool  // it reads its socket at the signal poke, also in the middle of a call
	exits    bool  // code ends the interpreter by its own wish, with an exit code
}

type interpreterCommand struct {
	path string
	args []string
	env  map[string]string
}

var languages = map[string]*language{
	"python": {
		name: "python", title: "Python interpreter", script: pythonScript, more: resultsScript, memory: 64 << 20, pokes: true,
		lost: "[ramet] the Python interpreter was restarted: variables and imports of earlier calls are lost\n",
		command: func(s *Service) interpreterCommand {
			return interpreterCommand{s.cfg.Python, []string{s.cfg.Python, "/proc/self/fd/4"}, s.cfg.PythonEnv}
		},
		encode: jsonFrame,
	},
	"javascript": {
		name: "javascript", title: "JavaScript interpreter", script: nodeScript, memory: 64 << 20,
		lost: "[ramet] the JavaScript interpreter was restarted: variables and modules of earlier calls are lost\n",
		command: func(s *Service) interpreterCommand {
			return interpreterCommand{s.cfg.Node, []string{s.cfg.Node, "-e", nodeLoader}, nil}
		},
		encode: jsonFrame,
	},
	"bash": {
		name: "bash", title: "shell", script: bashScript, memory: 4 << 20, pokes: true, exits: true,
		lost: "[ramet] the shell was restarted: variables and functions of earlier calls are lost\n",
		command: func(s *Service) interpreterCommand {
			return interpreterCommand{s.cfg.Bash, []string{"bash", "-c", bashStart, "bash", s.bashDir}, nil}
		},
		encode: bashLine, checkRun: checkBashRun,
	},
}

// nodeLoader runs repl.js from its descriptor: node would look for a file of that name.
const nodeLoader = `require("vm").runInThisContext(require("fs").readFileSync("/proc/self/fd/4","utf8"),` +
	`{filename:"ramet:repl.js"})(require,(specifier,options)=>import(specifier,options))`

// absent are languages that have a name and no interpreter.
var absent = map[string]string{"r": "R", "java": "Java"}

// languageName returns the name that a language has here.
func languageName(name string) string {
	switch n := strings.ToLower(name); n {
	case "py", "python3", "ipython":
		return "python"
	case "js", "node", "nodejs":
		return "javascript"
	case "ts":
		return typescript
	case "sh", "shell":
		return "bash"
	default:
		return n
	}
}

// unknownLanguage is why a language cannot be run.
func unknownLanguage(name string) error {
	if title, ok := absent[name]; ok {
		return invalid("%s is not installed in sandboxes; use python, javascript or bash", title)
	}
	return invalid("language %q is not known; use python, javascript or bash", name)
}

func jsonFrame(r *request) ([]byte, *os.File, error) {
	frame, err := encodeFrame(r)
	return frame, nil, err
}

// openScripts puts the scripts where interpreters read them.
func (s *Service) openScripts() error {
	s.scripts = make(map[string][]*os.File, len(languages))
	for name, l := range languages {
		for _, text := range []string{l.script, l.more} {
			if text == "" {
				continue
			}
			file, err := memoryFile("repl", text)
			if err != nil {
				s.closeScripts()
				return fmt.Errorf("script of %s: %w", name, err)
			}
			s.scripts[name] = append(s.scripts[name], file)
		}
	}
	if err := s.openBash(); err != nil {
		s.closeScripts()
		return err
	}
	return nil
}

func (s *Service) closeScripts() {
	for _, files := range s.scripts {
		for _, file := range files {
			file.Close()
		}
	}
	if s.bashDir != "" {
		_ = os.RemoveAll(s.bashDir) // else it stays in the spool's directory
	}
}
