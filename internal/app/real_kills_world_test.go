//go:build integration

package app_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/store"
)

// value is what a sandbox remembers: a variable of its interpreter, and a file.
type value struct{ py, file string }

// known is a sandbox as its client knows it.
type known struct {
	may        []value // one, or several after a call that was not answered
	persistent bool
}

// kept is a checkpoint or Space as its client knows it.
type kept struct {
	sandbox string
	name    string
	may     []value
}

// operation is a call, and what it may do.
type operation struct {
	name   string
	box    string // the sandbox that it is about
	other  string // the winner of a merge, the checkpoint or Space
	kind   string // of a checkpoint
	n      int    // of a fork; the value of a write; that of a name
	status int
	body   []byte
	err    error
	took   time.Duration
}

func (o *operation) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", o.name, o.box, o.other, o.kind))
}

func (o *operation) touches(id string) bool { return id != "" && (o.box == id || o.other == id) }

const (
	mostBoxes  = 5
	mostKept   = 3
	mostSpaces = 2
)

// draw chooses an operation that has nothing to do with those under way, or nil.
func (h *killHost) draw(under []*operation) *operation {
	free := func(ids []string) []string {
		return slices.DeleteFunc(ids, func(id string) bool {
			return slices.ContainsFunc(under, func(o *operation) bool { return o.touches(id) })
		})
	}
	boxes, checkpoints, spaces := free(keysOf(h.boxes)), free(keysOf(h.checkpoints)), free(keysOf(h.spaces))
	persistent := slices.DeleteFunc(slices.Clone(boxes), func(id string) bool { return !h.boxes[id].persistent })
	room := mostBoxes - len(h.boxes)
	for _, o := range under {
		room -= o.makes()
	}
	if room <= 0 && len(boxes) > 0 && h.rng.IntN(2) == 0 {
		return operation{name: []string{"delete", "merge"}[h.rng.IntN(2)], box: h.one(boxes)}.with(h, boxes)
	}
	names := []string{"create", "write", "write", "fork", "fork", "hibernate", "hibernate", "wake", "checkpoint", "checkpoint", "restore", "restore", "spawn", "merge", "delete", "freeze", "freeze", "resume", "forget"}
	for range 20 {
		o := &operation{name: names[h.rng.IntN(len(names))]}
		switch o.name {
		case "create", "fork", "spawn", "resume":
			if room <= 0 {
				continue
			}
		case "checkpoint":
			if len(h.checkpoints) >= mostKept {
				o.name = "forget"
			}
		case "freeze":
			if len(persistent) == 0 || len(h.spaces) >= mostSpaces {
				continue
			}
			o.box = h.one(persistent)
			return o
		}
		switch o.name {
		case "create":
			o.n = h.rng.IntN(2)
			return o
		case "spawn", "restore", "forget":
			if len(checkpoints) == 0 {
				continue
			}
			o.other = h.one(checkpoints)
			if o.name == "restore" {
				o.box = h.checkpoints[o.other].sandbox
				if !slices.Contains(boxes, o.box) {
					continue
				}
			}
			return o
		case "resume":
			if len(spaces) == 0 {
				continue
			}
			o.other = h.one(spaces)
			return o
		}
		if len(boxes) == 0 {
			continue
		}
		o.box = h.one(boxes)
		if o = o.with(h, boxes); o != nil {
			if o.name == "fork" {
				o.n = 1 + h.rng.IntN(min(2, room))
			}
			return o
		}
	}
	return nil
}

func (h *killHost) one(ids []string) string { return ids[h.rng.IntN(len(ids))] }

// makes is how many sandboxes it may add.
func (o *operation) makes() int {
	switch o.name {
	case "create", "spawn", "resume":
		return 1
	case "fork":
		return o.n
	}
	return 0
}

// with chooses what else an operation on a sandbox needs.
func (o operation) with(h *killHost, boxes []string) *operation {
	switch o.name {
	case "merge":
		others := slices.DeleteFunc(slices.Clone(boxes), func(id string) bool { return id == o.box })
		if len(others) == 0 {
			return nil
		}
		o.other = h.one(others)
	case "write":
		h.n++
		o.n = h.n
	case "checkpoint":
		h.n++
		o.n, o.kind = h.n, []string{"full", "full", "disk"}[h.rng.IntN(3)]
	}
	return &o
}

func (h *killHost) expected(o *operation) time.Duration {
	if took, ok := h.took[o.name]; ok {
		return took
	}
	return 800 * time.Millisecond
}

// perform makes the call of an operation.
func (h *killHost) perform(o *operation) {
	begin := time.Now()
	defer func() { o.took = time.Since(begin) }()
	box := "/v1/sandboxes/" + o.box
	post := func(path string, body any) { o.status, o.body, o.err = h.try("POST", path, body) }
	switch o.name {
	case "create":
		post("/v1/sandboxes", obj{"persistent": o.n == 1, "idle_timeout_s": 0})
	case "spawn":
		post("/v1/sandboxes", obj{"checkpoint": o.other})
	case "resume":
		post("/v1/spaces/"+o.other+"/resume", obj{"idle_timeout_s": 0})
	case "write":
		h.write(o)
	case "fork":
		post(box+"/fork", obj{"n": o.n})
	case "merge":
		post(box+"/merge_into/"+o.other, nil)
	case "hibernate", "wake":
		post(box+"/"+o.name, nil)
	case "checkpoint":
		post(box+"/checkpoints", obj{"name": o.label(), "kind": o.kind})
	case "restore":
		post(box+"/restore", obj{"checkpoint": o.other})
	case "delete":
		o.status, o.body, o.err = h.try("DELETE", box, nil)
	case "forget":
		o.status, o.body, o.err = h.try("DELETE", "/v1/checkpoints/"+o.other, nil)
	case "freeze":
		h.freeze(o)
	}
}

func (o *operation) label() string { return fmt.Sprintf("c%d", o.n) }

// write changes the variable and then, as a whole, the file.
func (h *killHost) write(o *operation) {
	code := fmt.Sprintf("import os\nv = '%d'\nf = open('/root/new', 'w'); _ = f.write(v); f.close()\nos.replace('/root/new', '/root/v')", o.n)
	o.status, o.body, o.err = h.try("POST", "/v1/sandboxes/"+o.box+"/exec", obj{"language": "python", "code": code})
	if o.err == nil && o.status == 200 && !strings.Contains(string(o.body), `"type":"exit"`) {
		o.err = fmt.Errorf("the stream broke") // like a call that was not answered
	}
}

// freeze lets a sandbox idle out into a Space. One that hibernates would stay as it is.
func (h *killHost) freeze(o *operation) {
	if o.status, o.body, o.err = h.try("POST", "/v1/sandboxes/"+o.box+"/wake", nil); o.err != nil || o.status != 200 {
		return
	}
	o.status, o.body, o.err = h.try("PATCH", "/v1/sandboxes/"+o.box, obj{"idle_timeout_s": 1})
	deadline := time.Now().Add(time.Minute)
	for o.err == nil && o.status == 200 {
		var list struct {
			Spaces []struct{ ID, Sandbox, Status string }
		}
		status, body, err := h.try("GET", "/v1/spaces", nil)
		if err == nil && status == 200 {
			err = json.Unmarshal(body, &list)
		}
		if err != nil {
			o.err = err
			return
		}
		for _, s := range list.Spaces {
			if s.Sandbox == o.box && s.Status == "ready" {
				o.body = []byte(s.ID)
				return
			}
		}
		if time.Now().After(deadline) {
			o.status, o.body = 504, []byte("it did not become a Space")
			return
		}
		<-time.After(20 * time.Millisecond)
	}
}

// complete does an operation that is not cut short.
func (h *killHost) complete(o *operation) {
	h.t.Helper()
	h.perform(o)
	if o.err != nil || o.status/100 != 2 {
		h.t.Errorf("%s: %v %d %s", o, o.err, o.status, o.body)
		return
	}
	h.completed++
	fmt.Fprintf(h.log, "--- done in %s: %s\n", o.took, o)
	h.acknowledged(o)
}

// acknowledged notes an operation that was answered with success.
func (h *killHost) acknowledged(o *operation) {
	h.t.Helper()
	took := o.took
	if was, ok := h.took[o.name]; ok {
		took = (3*was + took) / 4
	}
	h.took[o.name] = took
	h.happened(o)
}

// happened notes what an operation did.
func (h *killHost) happened(o *operation) {
	h.t.Helper()
	var answer struct {
		ID       string
		Children []string
	}
	if strings.HasPrefix(string(o.body), "{") && o.name != "write" {
		if err := json.Unmarshal(o.body, &answer); err != nil {
			h.t.Fatal(err)
		}
	}
	switch o.name {
	case "create":
		h.boxes[answer.ID] = &known{may: []value{{}}, persistent: o.n == 1}
	case "write":
		h.boxes[o.box].may = []value{{fmt.Sprint(o.n), fmt.Sprint(o.n)}}
	case "fork":
		if len(answer.Children) != o.n {
			h.t.Errorf("%s: %d children instead of %d", o, len(answer.Children), o.n)
		}
		for _, id := range answer.Children {
			h.boxes[id] = h.boxes[o.box].copy()
		}
	case "merge":
		for _, k := range h.checkpoints {
			if k.sandbox == o.other {
				k.sandbox = o.box
			}
		}
		h.boxes[o.box].may = h.boxes[o.other].may
		delete(h.boxes, o.other)
	case "checkpoint":
		h.checkpoints[answer.ID] = h.captured(o)
	case "restore":
		h.boxes[o.box].may = h.checkpoints[o.other].may
	case "delete":
		delete(h.boxes, o.box)
	case "forget":
		delete(h.checkpoints, o.other)
	case "freeze":
		h.spaces[string(o.body)] = &kept{sandbox: o.box, may: h.boxes[o.box].may}
		delete(h.boxes, o.box)
	case "spawn":
		h.boxes[answer.ID] = &known{may: h.checkpoints[o.other].may}
	case "resume":
		h.boxes[answer.ID] = &known{may: h.spaces[o.other].may}
		delete(h.spaces, o.other)
	}
}

func (k *known) copy() *known { return &known{slices.Clone(k.may), k.persistent} }

// captured is what a checkpoint holds that was made by o.
func (h *killHost) captured(o *operation) *kept {
	may := slices.Clone(h.boxes[o.box].may)
	if o.kind == "disk" {
		for i := range may {
			may[i].py = "" // there is no interpreter
		}
	}
	return &kept{sandbox: o.box, name: o.label(), may: may}
}

// listed is a sandbox as the server lists it.
type listed struct {
	ID, Status, Origin, Parent, Checkpoint, Space string

	FailReason  string `json:"fail_reason"`
	MergedInto  string `json:"merged_into"`
	BootNote    string `json:"boot_note"`
	IdleTimeout int    `json:"idle_timeout_s"`
	Persistent  bool   `json:"persistent"`
	MemoryMB    int    `json:"memory_mb"`
	DiskMB      int    `json:"disk_mb"`
}

// list is what the server has, by id: sandboxes that have not ended, and what is kept.
func (h *killHost) list() (boxes map[string]listed, checkpoints, spaces map[string]*kept) {
	h.t.Helper()
	var answer struct {
		Sandboxes   []listed
		Checkpoints []struct{ ID, Sandbox, Status, Name string }
		Spaces      []struct{ ID, Sandbox, Status, Name string }
	}
	h.server.call(h.t, "GET", "/v1/sandboxes?status=any&limit=1000", nil, &answer)
	h.server.call(h.t, "GET", "/v1/checkpoints?limit=1000", nil, &answer)
	h.server.call(h.t, "GET", "/v1/spaces?limit=1000", nil, &answer)
	boxes, checkpoints, spaces = map[string]listed{}, map[string]*kept{}, map[string]*kept{}
	for _, sb := range answer.Sandboxes {
		if sb.Status != "stopped" {
			boxes[sb.ID] = sb
		}
	}
	for _, c := range answer.Checkpoints {
		checkpoints[c.ID] = &kept{sandbox: c.Sandbox, name: c.Name}
	}
	for _, s := range answer.Spaces {
		spaces[s.ID] = &kept{sandbox: s.Sandbox}
	}
	return boxes, checkpoints, spaces
}

// settle waits for what goes on by itself after a restart: sandboxes that idle out.
func (h *killHost) settle(ops []*operation) {
	for _, o := range ops {
		if o.name != "freeze" || o.err == nil {
			continue
		}
		eventually(h.t, time.Minute, "what idles out is a Space", func() bool {
			boxes, _, _ := h.list()
			sb, ok := boxes[o.box]
			return !ok || sb.IdleTimeout == 0
		})
		eventually(h.t, 20*time.Second, "its machine is freed", func() bool {
			records, err := store.Open(h.t.Context(), config.Home(h.home).Database())
			if err != nil {
				h.t.Fatal(err)
			}
			defer records.Close()
			left, err := records.Intents(h.t.Context())
			if err != nil {
				h.t.Fatal(err)
			}
			return len(left) == 0
		})
	}
}

// look compares the host with what is known after a kill in ops, and takes over what has happened.
func (h *killHost) look(ops []*operation, before map[string]bool) {
	t := h.t
	t.Helper()
	boxes, checkpoints, spaces := h.list()
	h.usageAddsUp(boxes, h.nothingStray(before))
	for _, o := range ops {
		if o.err == nil && o.status/100 == 2 {
			h.acknowledged(o)
		} else {
			h.unanswered(o, boxes, checkpoints, spaces)
		}
	}
	for id, b := range h.boxes {
		sb, ok := boxes[id]
		if !ok {
			t.Errorf("sandbox %s is gone", id)
			continue
		}
		if sb.Status != "running" && sb.Status != "hibernated" {
			t.Errorf("sandbox %s is %s (%s)", id, sb.Status, sb.FailReason)
			continue
		}
		b.persistent = sb.Persistent
		if sb.Status == "running" || len(b.may) > 1 || h.rng.IntN(4) == 0 {
			h.read(id)
		}
	}
	for id, sb := range boxes {
		if h.boxes[id] == nil {
			t.Errorf("sandbox %s came from nowhere: %+v", id, sb)
		}
	}
	same(h, "checkpoint", checkpoints, h.checkpoints)
	same(h, "Space", spaces, h.spaces)
}

// same compares what is kept with what is known of it.
func same(h *killHost, what string, there, want map[string]*kept) {
	h.t.Helper()
	for id := range want {
		if there[id] == nil {
			h.t.Errorf("%s %s is gone", what, id)
		}
	}
	for id, k := range there {
		if w := want[id]; w == nil {
			h.t.Errorf("%s %s of %s came from nowhere", what, id, k.sandbox)
		} else if w.sandbox != k.sandbox {
			h.t.Errorf("%s %s belongs to %s instead of %s", what, id, k.sandbox, w.sandbox)
		}
	}
}

// unanswered finds out which of its two outcomes an operation had that nobody answered.
func (h *killHost) unanswered(o *operation, boxes map[string]listed, checkpoints, spaces map[string]*kept) {
	h.t.Helper()
	// made are the sandboxes that may come of it, which the client has not heard of.
	made := func(of func(listed) bool) (ids []string) {
		for _, id := range keysOf(boxes) {
			if h.boxes[id] == nil && of(boxes[id]) {
				ids = append(ids, id)
			}
		}
		if n := len(ids); n != 0 && n != o.makes() {
			h.t.Errorf("of %s %d sandboxes are there instead of none or %d", o, n, o.makes())
		}
		return ids
	}
	switch o.name {
	case "create":
		for _, id := range made(func(sb listed) bool { return sb.Origin == "create" }) {
			h.boxes[id] = &known{may: []value{{}}}
		}
	case "write":
		b, now := h.boxes[o.box], fmt.Sprint(o.n)
		for _, was := range slices.Clone(b.may) {
			b.may = append(b.may, value{now, was.file}, value{now, now})
		}
	case "fork":
		for _, id := range made(func(sb listed) bool { return sb.Origin == "fork" && sb.Parent == o.box }) {
			h.boxes[id] = h.boxes[o.box].copy()
		}
	case "spawn":
		for _, id := range made(func(sb listed) bool { return sb.Origin == "checkpoint" && sb.Checkpoint == o.other }) {
			h.boxes[id] = &known{may: h.checkpoints[o.other].may}
		}
	case "resume":
		for _, id := range made(func(sb listed) bool { return sb.Origin == "space" && sb.Space == o.other }) {
			h.boxes[id] = &known{may: h.spaces[o.other].may}
			delete(h.spaces, o.other) // it is consumed by exactly that
		}
	case "merge":
		if _, lives := boxes[o.other]; !lives {
			h.happened(o)
		}
	case "checkpoint":
		for _, id := range keysOf(checkpoints) {
			if k := checkpoints[id]; k.sandbox == o.box && k.name == o.label() {
				h.checkpoints[id] = h.captured(o)
			}
		}
	case "restore":
		b := h.boxes[o.box]
		b.may = append(slices.Clone(b.may), h.checkpoints[o.other].may...)
	case "delete":
		if _, lives := boxes[o.box]; !lives {
			h.happened(o)
		}
	case "forget":
		if checkpoints[o.other] == nil {
			h.happened(o)
		}
	case "freeze":
		for _, id := range keysOf(spaces) {
			if spaces[id].sandbox == o.box && h.spaces[id] == nil {
				o.body = []byte(id)
				h.happened(o)
				return
			}
		}
	}
}

const readValue = `import os; print(globals().get('v', '') + '/' + (open('/root/v').read() if os.path.exists('/root/v') else ''))`

// read compares what a sandbox remembers with what it may; then that is known.
func (h *killHost) read(id string) {
	h.t.Helper()
	b := &box{t: h.t, s: h.server, ID: id}
	py, file, _ := strings.Cut(strings.TrimSpace(b.mustPython(readValue)), "/")
	got, k := value{py, file}, h.boxes[id]
	if !slices.Contains(k.may, got) {
		var sb listed
		h.server.call(h.t, "GET", b.path(""), nil, &sb)
		h.t.Errorf("sandbox %s remembers %+v, want one of %+v: %+v", id, got, k.may, sb)
	}
	k.may = []value{got}
}

// verifyAll reads all sandboxes, and starts something from all that is kept.
func (h *killHost) verifyAll() {
	h.t.Helper()
	for _, id := range keysOf(h.boxes) {
		h.read(id)
		h.complete(&operation{name: "delete", box: id})
	}
	for _, id := range keysOf(h.checkpoints) {
		h.complete(&operation{name: "spawn", other: id})
	}
	for _, id := range keysOf(h.spaces) {
		h.complete(&operation{name: "resume", other: id})
	}
	for _, id := range keysOf(h.boxes) {
		h.read(id)
	}
}
