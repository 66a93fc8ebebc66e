package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ramet.dev/ramet/internal/config"
)

// settingFlag annotates the flags that are settings.
const settingFlag = "ramet_setting"

// addSettingFlags adds the flags of settings. Their values are read by
// (*program).settings, which knows all the other places of a setting too.
func addSettingFlags(fs *pflag.FlagSet, keys ...string) {
	for _, key := range keys {
		for _, s := range config.Settings() {
			if s.Key != key {
				continue
			}
			help := s.Help + " [" + s.Env() + "]"
			switch {
			case s.Default == "true" || s.Default == "false":
				fs.Bool(s.Flag(), s.Default == "true", help)
			case s.List:
				fs.Var(&listValue{text: s.Default}, s.Flag(), help+" (repeatable)")
				nameValue(fs, s.Flag(), s.Arg)
			default:
				fs.String(s.Flag(), s.Default, help)
				nameValue(fs, s.Flag(), s.Arg)
			}
			// Other flags may have the same name and another meaning.
			fs.Lookup(s.Flag()).Annotations = map[string][]string{settingFlag: nil}
		}
	}
}

// listValue is the flag of a setting that is a list. Given again it adds.
type listValue struct {
	text string
	set  bool
}

func (v *listValue) String() string { return v.text }
func (v *listValue) Type() string   { return "list" }

func (v *listValue) Set(s string) error {
	if v.set {
		s = v.text + "," + s
	}
	v.text, v.set = s, true
	return nil
}

// namedValue is a flag's value under another name in the help: "--data DIR"
// says more than "--data string".
type namedValue struct {
	pflag.Value
	name string
}

func (v namedValue) Type() string { return v.name }

// nameValue names the value of a flag in the help.
func nameValue(fs *pflag.FlagSet, flag, name string) {
	f := fs.Lookup(flag)
	f.Value = namedValue{f.Value, name}
	if f.DefValue == "[]" { // what pflag leaves out of the help for lists of its own
		f.DefValue = ""
	}
}

// envFlags are --env and --env-file.
type envFlags struct {
	pairs []string
	files []string
}

func (e *envFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringArrayVarP(&e.pairs, "env", "e", nil, "set an environment variable "+what+": K=V, or K for its value here (repeatable)")
	cmd.Flags().StringArrayVar(&e.files, "env-file", nil, "read environment variables from a file of K=V or K lines (repeatable)")
	nameValue(cmd.Flags(), "env", "K=V")
	nameValue(cmd.Flags(), "env-file", "FILE")
	cmd.MarkFlagFilename("env-file")
	cmd.RegisterFlagCompletionFunc("env", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, kv := range os.Environ() {
			name, _, _ := strings.Cut(kv, "=")
			names = append(names, name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// values returns the variables; flags win over files, later ones over earlier.
// It returns nil when there are none.
func (e *envFlags) values() (map[string]string, error) {
	out := map[string]string{}
	for _, path := range e.files {
		if err := readEnvFile(path, out); err != nil {
			return nil, err
		}
	}
	for _, p := range e.pairs {
		if err := setEnv(out, p); err != nil {
			return nil, usageErrorf("--env %w", err)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// setEnv adds "K=V", or "K" with the value that it has in our environment.
func setEnv(out map[string]string, pair string) error {
	name, value, found := strings.Cut(pair, "=")
	if name == "" || strings.ContainsRune(pair, 0) {
		return fmt.Errorf("%q: must be K=V or K", pair)
	}
	if !found {
		if value, found = os.LookupEnv(name); !found {
			return fmt.Errorf("%s: it is not set here; give it as %s=VALUE", name, name)
		}
	}
	out[name] = value
	return nil
}

// maxEnvFile bounds a file of variables, in bytes.
const maxEnvFile = 1 << 20

func readEnvFile(path string, out map[string]string) error {
	f, err := os.Open(path)
	if err != nil {
		return usageErrorf("--env-file: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxEnvFile)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimSpace(sc.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := setEnv(out, line); err != nil {
			return usageErrorf("%s:%d: %w", path, n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return usageErrorf("--env-file %s: %w", path, err)
	}
	return nil
}

// parsePairs reads "K=V" arguments, as --metadata takes them.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, p := range pairs {
		k, v, found := strings.Cut(p, "=")
		if !found || k == "" {
			return nil, usageErrorf("--%s %q: must be K=V", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// ptr returns a pointer to v, or nil when v is its type's zero value: that is
// how an optional field of a request is left out.
func ptr[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// mapPtr is ptr for maps.
func mapPtr(m map[string]string) *map[string]string {
	if len(m) == 0 {
		return nil
	}
	return &m
}

// atLeast is cobra's MinimumNArgs with words that name what is missing.
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < n {
			return fmt.Errorf("missing argument: %s", what)
		}
		return nil
	}
}

// exactly is cobra's ExactArgs with words that name what is missing.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return fmt.Errorf("missing argument: %s", what)
		case len(args) > n:
			return fmt.Errorf("unexpected argument %q", args[n])
		}
		return nil
	}
}

// none accepts no arguments.
var none = exactly(0, "")

var errNoNegative = errors.New("must not be negative")
