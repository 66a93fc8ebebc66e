package config

import (
	"fmt"
	"net/url"
	"strings"
)

// ParseRegions reads the setting regions: NAME=URL, with commas between them.
func ParseRegions(v string) (map[string]*url.URL, error) {
	out := make(map[string]*url.URL)
	for _, f := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, raw, ok := strings.Cut(f, "=")
		if !ok || checkName(name) != nil || strings.ToLower(name) != name {
			return nil, fmt.Errorf("has %q, but must be names in lower case with their URLs, such as eu=https://eu.example.com", f)
		}
		if err := checkURL(raw); err != nil {
			return nil, fmt.Errorf("has for %s a URL that %w", name, err)
		}
		if out[name] != nil {
			return nil, fmt.Errorf("names %s twice", name)
		}
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("has for %s a URL that is none", name)
		}
		out[name] = u
	}
	return out, nil
}

func checkRegions(v string) error {
	_, err := ParseRegions(v)
	return err
}

// checkOptionalURL also takes nothing.
func checkOptionalURL(v string) error {
	if v == "" {
		return nil
	}
	return checkURL(v)
}
