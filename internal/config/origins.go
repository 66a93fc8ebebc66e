package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AnyOrigin stands for the pages of every origin.
const AnyOrigin = "*"

// maxOrigins bounds the origins whose pages may call.
const maxOrigins = 64

// parseOrigins reads the setting cors_origins. What it returns is as browsers write it in the
// header Origin: they compare letter by letter, and so can we.
func parseOrigins(v string) ([]string, error) {
	var out []string
	for _, f := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' }) {
		origin, err := parseOrigin(f)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, origin) {
			out = append(out, origin)
		}
	}
	if len(out) > 1 && slices.Contains(out, AnyOrigin) {
		return nil, errors.New("has * and other origins, but * stands for all: give it alone, or the others without it")
	}
	if len(out) > maxOrigins {
		return nil, fmt.Errorf("has %d origins, but at most %d are possible", len(out), maxOrigins)
	}
	return out, nil
}

func parseOrigin(v string) (string, error) {
	if v == AnyOrigin {
		return v, nil
	}
	wrong := func(why string) error {
		return fmt.Errorf("has %q, but %s; an origin is like https://app.example.com or http://localhost:5173", v, why)
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "":
		return "", wrong("an origin begins with http:// or https://")
	case u.User != nil || u.Path != "" || strings.ContainsAny(v, "?#"):
		return "", wrong("nothing may stand behind its host and port, not even a slash, and no user before them")
	}
	host := strings.ToLower(u.Hostname())
	switch ip, err := netip.ParseAddr(host); {
	case err == nil && ip.Is6() && ip.Zone() == "":
		host = "[" + ip.String() + "]"
	case err != nil && !domainRE.MatchString(host):
		return "", wrong("its host must be an address or a name without wildcards, in the form with xn-- where it has other than ASCII letters")
	case err == nil && !ip.Is4():
		return "", wrong("its address cannot have a zone")
	}
	port := u.Port()
	if strings.HasSuffix(u.Host, ":") {
		return "", wrong("its port is missing")
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return "", wrong("its port is not a number from 1 to 65535")
		}
		// Browsers leave the port of the scheme out.
		if n == 80 && u.Scheme == "http" || n == 443 && u.Scheme == "https" {
			return u.Scheme + "://" + host, nil
		}
		host += ":" + strconv.FormatUint(n, 10)
	}
	return u.Scheme + "://" + host, nil
}

func checkOrigins(v string) error {
	_, err := parseOrigins(v)
	return err
}

// checkPages refuses to let every page of the web use a server that asks for no key.
func (s Server) checkPages() error {
	if s.NoAuth && slices.Contains(s.CORSOrigins, AnyOrigin) {
		return errors.New("the settings no_auth and cors_origins=* are both given: every page that a browser of this host shows could use the sandboxes; " +
			"name the origins, or serve with API keys")
	}
	return nil
}
