package image

import "testing"

func TestCanonicalJSON(t *testing.T) {
	for name, c := range map[string]struct {
		in   any
		want string
	}{
		"members sorted, no space": {map[string]any{"b": 1, "a": []any{true, nil, -7}}, `{"a":[true,null,-7],"b":1}`},
		"no HTML escapes":          {"<a&b>\u2028", "\"<a&b>\u2028\""},
		"shortest escapes":         {"\b\t\n\f\r\"\\\x01é", `"\b\t\n\f\r\"\\\u0001é"`},
		// RFC 8785, 3.2.3: order is by UTF-16 units, so U+1F600 (D83D…) comes before U+FB33.
		"UTF-16 order": {map[string]any{"\ufb33": 1, "\U0001f600": 2, "\r": 3, "1": 4, "\u20ac": 5}, "{\"\\r\":3,\"1\":4,\"\u20ac\":5,\"\U0001f600\":2,\"\ufb33\":1}"},
	} {
		got, err := canonicalJSON(c.in)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, c.want)
		}
	}
	for _, bad := range []any{1.5, int64(1) << 60} {
		if got, err := canonicalJSON(bad); err == nil {
			t.Errorf("canonicalJSON(%v) = %s, want an error", bad, got)
		}
	}
}

func TestKeys(t *testing.T) {
	make := func(change func(*rootInputs), agent string) keys {
		t.Helper()
		def, err := Default().normalize()
		if err != nil {
			t.Fatal(err)
		}
		in := rootInputs{Format: 1, Arch: "amd64", Definition: def, Sources: "deb x"}
		change(&in)
		k, err := makeKeys(in, agent)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	base := make(func(*rootInputs) {}, "a1")
	if same := make(func(in *rootInputs) { in.Definition.Name = "other" }, "a1"); same != base {
		t.Error("the template's name is part of the hash")
	}
	agent := make(func(*rootInputs) {}, "a2")
	if agent.Root != base.Root || agent.Initrd == base.Initrd || agent.Build == base.Build {
		t.Error("a new agent must change initrd and build, and nothing of the root filesystem")
	}
	for name, change := range map[string]func(*rootInputs){
		"package": func(in *rootInputs) { in.Definition.Packages = in.Definition.Packages[1:] },
		"kernel":  func(in *rootInputs) { in.Definition.Kernel = "linux-image-amd64" },
		"ca":      func(in *rootInputs) { in.CA = "x" },
		"format":  func(in *rootInputs) { in.Format = 2 },
		"mirror":  func(in *rootInputs) { in.Sources = "deb y" },
		"epoch":   func(in *rootInputs) { in.Definition.Epoch = "2" },
		"font":    func(in *rootInputs) { in.Definition.Fonts = []string{"X"} },
		"warm-up": func(in *rootInputs) { in.Definition.WarmUp = []WarmUp{{"python", "1"}} },
	} {
		if k := make(change, "a1"); k.Root == base.Root || k.Initrd == base.Initrd || k.Build == base.Build {
			t.Errorf("changed %s does not change every key", name)
		}
	}
}

func TestNormalize(t *testing.T) {
	d := Default()
	d.Packages = []string{"zip", "bash", "zip"}
	n, err := d.normalize()
	if err != nil || len(n.Packages) != 2 || n.Packages[0] != "bash" {
		t.Errorf("packages = %v, %v; want them sorted, each once", n.Packages, err)
	}
	for name, change := range map[string]func(*Definition){
		"name with slash":      func(d *Definition) { d.Name = "../x" },
		"font":                 func(d *Definition) { d.Fonts = []string{"X\nbackend: x"} },
		"warm-up":              func(d *Definition) { d.WarmUp = []WarmUp{{"perl", "1"}} },
		"hidden name":          func(d *Definition) { d.Name = ".building" },
		"package with option":  func(d *Definition) { d.Packages = []string{"--include=x"} },
		"package with newline": func(d *Definition) { d.Packages = []string{"bash\nx"} },
		"kernel":               func(d *Definition) { d.Kernel = "" },
		"suite":                func(d *Definition) { d.Suite = "../stable" },
		"user":                 func(d *Definition) { d.Users = []User{{"root; rm", 1000}} },
		"system uid":           func(d *Definition) { d.Users = []User{{"x", 0}} },
		"disk":                 func(d *Definition) { d.DiskMB = -1 },
		"ca":                   func(d *Definition) { d.GuestCA = "all" },
	} {
		d := Default()
		change(&d)
		if _, err := d.normalize(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
