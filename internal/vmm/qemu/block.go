package qemu

import (
	"encoding/json"
	"fmt"
)

// blockNode describes a layer for -blockdev and blockdev-add. Backing nodes
// are named explicitly, so what a guest wrote into a qcow2 header decides nothing.
//
//   - no-flush on the top: a flush of the guest goes to the file but not to the
//     host's disk; a pause with much unwritten data would otherwise take long.
//   - drop-cache off: page cache is what makes restores fast.
//   - locking off: a layer has one owner by construction, and the locks of the
//     read-only and the read-write descriptor of one set would collide.
func blockNode(node, format string, set int, backing string, top bool) map[string]any {
	file := map[string]any{
		"driver":     "file",
		"filename":   fmt.Sprintf("/dev/fdset/%d", set),
		"locking":    "off",
		"drop-cache": false,
		"discard":    "unmap",
		"cache":      map[string]any{"no-flush": top},
		"read-only":  !top,
	}
	n := map[string]any{
		"node-name": node,
		"driver":    format,
		"file":      file,
		"discard":   "unmap",
		"cache":     map[string]any{"no-flush": top},
		"read-only": !top,
	}
	if format == "qcow2" {
		n["backing"] = nil
		if backing != "" {
			n["backing"] = backing
		}
	}
	if top {
		n["detect-zeroes"] = "unmap"
	}
	return n
}

// mustJSON encodes a value of our own that has nothing in it that can fail.
func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("qemu: " + err.Error())
	}
	return string(b)
}
