package sandbox

import "testing"

func TestKeysInTheShapeOfE2B(t *testing.T) {
	const key = "rmt_AbC-_123"
	hex := HexKey(key)
	if hex != "e2b_726d745f4162432d5f313233" {
		t.Errorf("the key is %s", hex)
	}
	for in, want := range map[string]string{
		hex: key, key: key, "": "", "other": "other", "e2b_": "e2b_", "e2b_zz": "e2b_zz", "e2b_0": "e2b_0",
		"e2b_" + "00112233": "e2b_00112233", // no key of ours
	} {
		if got := PlainKey(in); got != want {
			t.Errorf("%q is %q, not %q", in, got, want)
		}
	}
	for _, other := range []string{"", "e2b_0011", "pk_live_1"} {
		if got := HexKey(other); got != other {
			t.Errorf("%q became %q", other, got)
		}
	}
}

func TestIDsOfAllForms(t *testing.T) {
	id := NewID()
	for _, s := range []string{string(id), id.String(), id.Alphanumeric()} {
		if got, err := ParseID(s); err != nil || got != id {
			t.Errorf("%s: %s %v", s, got, err)
		}
	}
	for _, s := range []string{"", "i", "sbx_", "sbx_i" + string(id), "i" + string(id)[1:], "I" + string(id), "ii" + string(id), string(id) + "0"} {
		if got, err := ParseID(s); KindOf(err) != NotFound {
			t.Errorf("%s: %s %v", s, got, err)
		}
	}
}
