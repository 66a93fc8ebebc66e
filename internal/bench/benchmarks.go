package bench

import (
	"context"
	"math/rand/v2"
	"slices"
)

// Benchmark is one thing that is measured.
type Benchmark struct {
	Name  string
	About string // one line for people
	// Default is how many samples are taken; Max is the most that --n gives.
	Default, Max int
	// Asked ones are measured only when they are named.
	Asked bool

	warm      int    // calls between the cold sample and the others that are not kept
	bytes     int64  // what a sample moves, for MB/s
	floor     string // what it is compared with; without open: what is measured
	poolFloor string // likewise, when the server has a warm pool; "": as without
	pool      poolUse
	answer    string // the step that is compared with the floor, "": the whole sample
	refusable bool   // a server without room for it has not failed
	// open makes the probe. whole takes all samples by itself instead.
	open  func(context.Context, *session) (Probe, error)
	whole func(ctx context.Context, s *session, n int, r *Result)
}

// poolUse says what a benchmark has to do with a warm pool.
type poolUse int

const (
	poolOptional poolUse = iota
	poolNeeded           // there is nothing to measure without
)

// samples is how many to take when n are asked for.
func (b Benchmark) samples(n int) int {
	if n <= 0 {
		return b.Default
	}
	return min(n, b.Max)
}

const (
	many  = 10000 // the most samples of what takes milliseconds
	tails = 200   // samples that a 99th percentile is worth something with
	// hotWarm is how many calls it takes until the guest's code is translated
	// under emulation.
	hotWarm = 20

	small = 256 << 10
	large = 64 << 20
)

// Benchmarks is the table of all, in the order in which they run.
func Benchmarks() []Benchmark {
	return slices.Concat(creates(), calls(), files(), forks(), saves(), belowTheServer(), scaling())
}

// creates are about making sandboxes and ending them; see creates.go, refill.go and burst.go.
func creates() []Benchmark {
	return []Benchmark{
		{Name: "create", About: "create a sandbox, from the pool if there is one, until it takes calls", Default: tails, Max: many, floor: FloorCreate, poolFloor: FloorHandOff, open: openCreate},
		{Name: "create_miss", About: "create a sandbox that the pool has no machine for", Default: 50, Max: many, floor: FloorCreate, pool: poolNeeded, open: openCreateMiss},
		{Name: "first_exec", About: "the first print(1) of a fresh sandbox", Default: 30, Max: many, floor: FloorFirstExec, poolFloor: FloorExec, open: openFirstExec},
		{Name: "roundtrip", About: "create, print(1), delete", Default: tails, Max: many, floor: FloorRoundTrip, poolFloor: FloorHandOffRoundTrip, open: openRoundTrip},
		{Name: "delete", About: "delete a sandbox, until all of it is free", Default: 30, Max: many, floor: FloorDelete, open: openDelete},
		{Name: "refill", About: "make one warm machine, as the server says", Default: 20, Max: 1000, floor: FloorRefill, pool: poolNeeded, open: openRefill},
		{Name: "burst", About: "creates by several clients at once: until the pool is empty, and after that", Default: tails, Max: many, whole: measureBurst},
	}
}

// calls are calls to a sandbox that is there.
func calls() []Benchmark {
	return []Benchmark{
		{Name: "hot_exec", About: "print(1) in a sandbox that is warm", Default: 200, Max: many, warm: hotWarm, floor: FloorExec, open: openExec(printOne)},
		{Name: "bash", About: "echo ready, in a fresh bash", Default: 50, Max: many, warm: 5, floor: FloorBash, open: openExec(echoReady)},
	}
}

func files() []Benchmark {
	return []Benchmark{
		{Name: "upload_256k", About: "256 KB into a file", Default: 50, Max: many, warm: 5, bytes: small, floor: FloorUpload256K, open: openUpload(small)},
		{Name: "download_256k", About: "256 KB from a file", Default: 50, Max: many, warm: 5, bytes: small, floor: FloorDownload256K, open: openDownload(small)},
		{Name: "upload_64m", About: "64 MB into a file", Default: 5, Max: 50, bytes: large, floor: FloorUpload64M, open: openUpload(large)},
		{Name: "download_64m", About: "64 MB from a file", Default: 5, Max: 50, bytes: large, floor: FloorDownload64M, open: openDownload(large)},
	}
}

// forks are about sandboxes that are copied while they run; see fork.go.
func forks() []Benchmark {
	return []Benchmark{
		{Name: "fork_first", About: "the first fork of a fresh sandbox, one child", Default: 30, Max: 1000, answer: StepFirstAnswer, floor: FloorRefill, open: openForkFirst},
		{Name: "fork_1", About: "fork a running sandbox, one child", Default: 40, Max: 1000, warm: 1, answer: StepFirstAnswer, floor: FloorRefill, open: openFork(1)},
		{Name: "fork_5", About: "fork a running sandbox, five children", Default: 10, Max: 200, refusable: true, open: openFork(5)},
		{Name: "fork_32", About: "fork a running sandbox, 32 children", Default: 3, Max: 20, refusable: true, open: openFork(32)},
		{Name: "merge", About: "merge a child into its parent", Default: 20, Max: 200, warm: 1, open: openMerge},
	}
}

// saves are about sandboxes that are put on the disk and come back; see hibernate.go.
func saves() []Benchmark {
	return []Benchmark{
		{Name: "hibernate", About: "hibernate a sandbox with 64 MB of dirty memory", Default: 20, Max: 200, warm: 1, floor: FloorSave64M, open: openHibernate},
		{Name: "wake", About: "wake a sandbox with 64 MB of dirty memory", Default: 20, Max: 200, warm: 1, answer: StepFirstAnswer, floor: FloorRefill, open: openWake},
		{Name: "checkpoint", About: "make a full checkpoint of a running sandbox", Default: 20, Max: 200, warm: 1, open: openCheckpoint},
		{Name: "restore_checkpoint", About: "take a sandbox back to a full checkpoint", Default: 20, Max: 200, warm: 1, answer: StepFirstAnswer, floor: FloorRefill, open: openRestore},
	}
}

// scaling is what forks cost when something grows; see scaling.go.
func scaling() []Benchmark {
	return []Benchmark{
		{Name: ScaleDirty, About: "fork(1) against dirty memory", Default: 3, Max: 50, Asked: true, whole: scaleDirty},
		{Name: ScaleSiblings, About: "fork(1) against the number of siblings that run", Default: 3, Max: 50, Asked: true, whole: scaleSiblings},
		{Name: ScaleDepth, About: "fork(1) against depth: a child of a child", Default: 3, Max: 50, Asked: true, whole: scaleDepth},
	}
}

// belowTheServer are what idle sandboxes cost the host, and what it can do without the server.
func belowTheServer() []Benchmark {
	return []Benchmark{
		{Name: "density", About: "memory of idle sandboxes, each", Default: 16, Max: 64, whole: density},
		{Name: "restore", About: "without the server: start QEMU, load the golden snapshot, first answer", Default: 30, Max: 1000, floor: FloorRestore},
		{Name: "handoff", About: "without the server: synced transaction, continue a waiting machine, one answer", Default: 100, Max: many, warm: 5, floor: FloorHandOff},
		{Name: "agent_hello", About: "without the server: the shortest call to the agent", Default: 200, Max: many, warm: hotWarm, floor: FloorHello},
		{Name: "cold_boot", About: "without the server: boot the template's kernel, first answer", Default: 3, Max: 20, floor: FloorColdBoot},
	}
}

// Content is n bytes that do not compress, the same ones at each call.
func Content(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{'r', 'a', 'm', 'e', 't'}).Read(b) // never fails
	return b
}
