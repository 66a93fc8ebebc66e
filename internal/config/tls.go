package config

import (
	"errors"
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxDomains bounds the names that a server gets certificates for; authorities
// limit how many they issue.
const maxDomains = 32

func parseDomains(v string) ([]string, error) {
	var out []string
	for _, f := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' }) {
		name := strings.ToLower(strings.TrimSuffix(f, "."))
		if !validDomain(name) {
			return nil, fmt.Errorf("has %q, but must be host names with a dot, such as sandboxes.example.com; not addresses, and no wildcards", f)
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) > maxDomains {
		return nil, fmt.Errorf("has %d names, but at most %d are possible", len(out), maxDomains)
	}
	return out, nil
}

// validDomain accepts what an authority can verify by a challenge to this server.
func validDomain(name string) bool {
	if len(name) > 253 || !strings.Contains(name, ".") {
		return false
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return false
			}
		}
	}
	return true
}

func checkDomains(v string) error {
	_, err := parseDomains(v)
	return err
}

// checkDomain accepts a name, with a port behind it where that is not the one of the scheme.
func checkDomain(v string) error {
	host, port, found := strings.Cut(v, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	if v == "" || domainRE.MatchString(host) && (!found || err == nil && n > 0) {
		return nil
	}
	return fmt.Errorf("is %q, but must be a domain such as sandboxes.example.com, in lower case", v)
}

var domainRE = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkEmail(v string) error {
	if a, err := mail.ParseAddress(v); v != "" && (err != nil || a.Address != v) {
		return fmt.Errorf("is %q, but must be an e-mail address, such as ops@example.com", v)
	}
	return nil
}

func checkACMECA(v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("is %q, but must be the https URL of an ACME directory", v)
	}
	return nil
}

// checkOptionalListen is checkListen for an address that need not be.
func checkOptionalListen(v string) error {
	if v == "" {
		return nil
	}
	return checkListen(v)
}

// check finds settings that contradict each other, and ones that alone do nothing.
func (t TLS) check() error {
	switch {
	case t.CertFile != "" && len(t.ACMEDomains) > 0:
		return errors.New("the settings tls_cert and acme_domain are both given: a certificate comes from files or by ACME")
	case (t.CertFile == "") != (t.KeyFile == ""):
		return errors.New("the settings tls_cert and tls_key belong together, but only one of them is given")
	case len(t.ACMEDomains) == 0 && (t.ACMEEmail != "" || t.ACMECARoot != "" || t.ACMEHTTP != ""):
		return errors.New("settings of ACME are given without acme_domain, which names what to get certificates for")
	}
	return nil
}
