package image

import (
	"bufio"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// debianKeyring verifies Debian's archives, on the host and in the guest. The
// package debian-archive-keyring holds it.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// The public mirrors of Debian, for hosts whose own sources name none of the suite.
const (
	publicMirror         = "http://deb.debian.org/debian"
	publicSecurityMirror = "http://deb.debian.org/debian-security"
)

// source is one suite of one mirror.
type source struct {
	URI        string
	Suite      string
	Components []string
}

// hostSources returns the entries of the host's apt configuration in etcApt
// (/etc/apt) that are Debian's own archive of the suite. Third parties'
// archives are left out. Without any, it returns Debian's public mirrors.
func hostSources(etcApt, suite string) ([]source, error) {
	files, err := sourceFiles(etcApt)
	if err != nil {
		return nil, err
	}
	var found []source
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("apt sources: %w", err)
		}
		if strings.HasSuffix(f, ".sources") {
			found = append(found, parseDeb822(string(text))...)
		} else {
			found = append(found, parseOneLine(string(text))...)
		}
	}
	return pickDebian(found, suite), nil
}

// pickDebian keeps the archives of the suite, each once, the release itself first.
func pickDebian(found []source, suite string) []source {
	suites := []string{suite, suite + "-updates", suite + "-security"}
	var picked []source
	for _, want := range suites {
		for _, s := range found {
			if s.Suite == want && !slices.ContainsFunc(picked, func(p source) bool { return p.URI == s.URI && p.Suite == s.Suite }) {
				picked = append(picked, s)
			}
		}
	}
	if len(picked) > 0 && picked[0].Suite == suite {
		return picked
	}
	main := []string{"main"}
	return []source{{publicMirror, suites[0], main}, {publicMirror, suites[1], main}, {publicSecurityMirror, suites[2], main}}
}

// sourceFiles lists the files that apt reads, in its order.
func sourceFiles(etcApt string) ([]string, error) {
	var files []string
	single := filepath.Join(etcApt, "sources.list")
	if _, err := os.Stat(single); err == nil {
		files = append(files, single)
	}
	entries, err := os.ReadDir(filepath.Join(etcApt, "sources.list.d"))
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("apt sources: %w", err)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeDir == 0 && (strings.HasSuffix(e.Name(), ".list") || strings.HasSuffix(e.Name(), ".sources")) {
			files = append(files, filepath.Join(etcApt, "sources.list.d", e.Name()))
		}
	}
	return files, nil
}

// parseOneLine parses the classic format: deb [options] uri suite components…
func parseOneLine(text string) []source {
	var out []source
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '\t' && rest[0] != '[') {
			continue
		}
		rest = strings.TrimSpace(rest)
		var signedBy string
		if strings.HasPrefix(rest, "[") {
			options, after, closed := strings.Cut(rest[1:], "]")
			if !closed {
				continue
			}
			for _, o := range strings.Fields(options) {
				if v, ok := strings.CutPrefix(strings.ToLower(o), "signed-by="); ok {
					signedBy = v
				}
			}
			rest = after
		}
		f := strings.Fields(rest)
		if len(f) >= 3 {
			out = appendDebian(out, f[0], f[1], f[2:], signedBy)
		}
	}
	return out
}

// parseDeb822 parses paragraphs of "Field: value" with continuation lines.
func parseDeb822(text string) []source {
	var out []source
	fields, last := map[string]string{}, ""
	flush := func() {
		defer func() { fields, last = map[string]string{}, "" }()
		if !slices.Contains(strings.Fields(fields["types"]), "deb") || strings.EqualFold(strings.TrimSpace(fields["enabled"]), "no") {
			return
		}
		for _, uri := range strings.Fields(fields["uris"]) {
			for _, suite := range strings.Fields(fields["suites"]) {
				out = appendDebian(out, uri, suite, strings.Fields(fields["components"]), strings.TrimSpace(fields["signed-by"]))
			}
		}
	}
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<20) // keys may be embedded
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				fields[last] += " " + strings.TrimSpace(line)
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if ok {
				last = strings.ToLower(strings.TrimSpace(name))
				fields[last] = value
			}
		}
	}
	flush()
	return out
}

// appendDebian appends an entry if it looks like an archive of Debian: by
// HTTP, with the component main, and either signed by Debian's keyring or,
// with no key named, at a path that ends like a Debian mirror's. A wrong
// guess does no harm: the build verifies the archive against Debian's keyring.
func appendDebian(out []source, uri, suite string, components []string, signedBy string) []source {
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.ContainsAny(uri, "[]\"\\") {
		return out
	}
	switch {
	case !slices.Contains(components, "main"):
		return out
	case signedBy != "" && !strings.Contains(signedBy, "debian-archive"):
		return out
	case signedBy == "" && !strings.HasPrefix(path.Base(strings.TrimRight(u.Path, "/")), "debian"):
		return out
	}
	known := slices.DeleteFunc(slices.Clone(components), func(c string) bool {
		return !slices.Contains([]string{"main", "contrib", "non-free", "non-free-firmware"}, c)
	})
	return append(out, source{URI: strings.TrimRight(uri, "/"), Suite: suite, Components: known})
}

// publicSources are the sources as guests and manifests get them, without the
// names and passwords for a mirror.
func publicSources(sources []source) []source {
	out := slices.Clone(sources)
	for i, s := range out {
		if u, err := url.Parse(s.URI); err == nil && u.User != nil {
			u.User = nil
			out[i].URI = u.String()
		}
	}
	return out
}

// oneLineFormat writes sources as apt's classic format.
func oneLineFormat(sources []source) string {
	var b strings.Builder
	for _, s := range sources {
		fmt.Fprintf(&b, "deb [signed-by=%s] %s %s %s\n", debianKeyring, s.URI, s.Suite, strings.Join(s.Components, " "))
	}
	return b.String()
}
