package sandbox

// Capacity is what a host can hand out, and how it has done so far.
type Capacity struct {
	// Machines is how many run for sandboxes; those of the pool are not among them.
	Machines int
	Pools    []Pool
	// Waiting processes were started ahead of forks and wakes; so many are kept.
	Waiting, WaitingSize int
	// Unpooled counts the creates of a template or shape that no pool is kept for.
	Unpooled uint64
}

// Pool is the warm pool of one template and shape. Counters begin with the server.
type Pool struct {
	Template string
	Shape    Shape
	Size     int // how many are kept
	Ready    int // how many there are
	Warming  int // how many are being made

	// Hits are creates that took a machine of the pool, Misses those that found
	// none and had to boot one.
	Hits, Misses uint64
	// Discarded counts machines that were thrown away because they had died, or
	// their template or monitor had been replaced, or memory was short.
	Discarded uint64
	HandOff   Timing // of the hits
	OnDemand  Timing // of the boots for the misses
	Refill    Timing // of machines made for the pool
}

// HitRate is the share of creates that took a machine of the pool; 0 without any.
func (p Pool) HitRate() float64 {
	if p.Hits+p.Misses == 0 {
		return 0
	}
	return float64(p.Hits) / float64(p.Hits+p.Misses)
}

// Timing sums up how long something took.
type Timing struct {
	Count   uint64
	TotalMS float64
	LastMS  float64
}

// MeanMS is the mean in milliseconds; 0 without any.
func (t Timing) MeanMS() float64 {
	if t.Count == 0 {
		return 0
	}
	return t.TotalMS / float64(t.Count)
}

// Plus returns the sum of two pools: of their sizes and counters.
func (p Pool) Plus(o Pool) Pool {
	return Pool{
		Size: p.Size + o.Size, Ready: p.Ready + o.Ready, Warming: p.Warming + o.Warming,
		Hits: p.Hits + o.Hits, Misses: p.Misses + o.Misses, Discarded: p.Discarded + o.Discarded,
		HandOff: p.HandOff.plus(o.HandOff), OnDemand: p.OnDemand.plus(o.OnDemand), Refill: p.Refill.plus(o.Refill),
	}
}

// plus keeps the last of o, if it has one.
func (t Timing) plus(o Timing) Timing {
	last := t.LastMS
	if o.Count > 0 {
		last = o.LastMS
	}
	return Timing{Count: t.Count + o.Count, TotalMS: t.TotalMS + o.TotalMS, LastMS: last}
}
