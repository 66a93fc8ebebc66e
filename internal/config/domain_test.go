package config

import "testing"

func TestDomains(t *testing.T) {
	for _, v := range []string{"", "localhost", "localhost:7070", "box.example.com", "a-1.b.example.com:65535", "xn--bcher-kva.example"} {
		if err := checkDomain(v); err != nil {
			t.Errorf("%q %v", v, err)
		}
	}
	for _, v := range []string{"*.example.com", ".example.com", "example.com.", "Box.example.com", "a b", "a:0", "a:70000", "a:", ":1", "http://a", "a/b", "-a.example.com", "a..b"} {
		if checkDomain(v) == nil {
			t.Errorf("%q is taken", v)
		}
	}
}
