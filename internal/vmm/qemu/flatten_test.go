package qemu

import "testing"

// TestFlattenBase merges what is small beside what is below it.
func TestFlattenBase(t *testing.T) {
	const mb = 1 << 20
	for name, c := range map[string]struct {
		sizes         []int64
		shared, limit int
		want          int
	}{
		"few layers":           {[]int64{500, 1, 1, 1}, 1, 6, -1},
		"all are small":        {[]int64{500 * mb, 1, 1, 1, 1, 1, 1, 1, 1}, 1, 6, 1},
		"a large one stays":    {[]int64{500, 900 * mb, 1, 1, 1, 1, 1, 1, 1}, 1, 6, 2},
		"the golden's stay":    {[]int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 2, 6, 2},
		"none shared":          {[]int64{1, 1, 1, 1, 1, 1, 1, 1}, 0, 6, 0},
		"the newest are large": {[]int64{1, 1, 1, 1, 1, 1, 1, 900 * mb, 100 * mb}, 1, 6, 1},
	} {
		if got := flattenBase(c.sizes, c.shared, c.limit); got != c.want {
			t.Errorf("%s: base %d, want %d", name, got, c.want)
		}
	}
}
