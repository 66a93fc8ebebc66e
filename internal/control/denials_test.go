package control

import (
	"net/netip"
	"strconv"
	"testing"
	"time"
)

// TestDenialsOfAFlood has a guest that tries as much as it can for a day, at many destinations.
func TestDenialsOfAFlood(t *testing.T) {
	for name, destinations := range map[string]int{"one destination": 1, "few": 10, "many": 5000} {
		t.Run(name, func(t *testing.T) {
			d := newDenials()
			now := time.Unix(1_700_000_000, 0)
			events, told, n := 0, 0, 0
			for end := now.Add(24 * time.Hour); now.Before(end); now = now.Add(10 * time.Second) {
				for range 50 {
					n++
					addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(n % destinations)}), uint16(n%destinations+1))
					if _, now := d.add(now, denialKind{protocol: "tcp", addr: addr, reason: "r", rule: "r"}); now {
						events, told = events+1, told+1
					}
				}
				if len(d.pending) > denialKinds {
					t.Fatalf("%d kinds are remembered", len(d.pending))
				}
				for _, e := range d.due(now) {
					c, err := strconv.Atoi(e.Data["count"])
					if err != nil || c < 1 {
						t.Fatalf("%+v", e)
					}
					events, told = events+1, told+c
				}
			}
			if most := denialBurst + 24*60; events > most || events < 24*60/2 {
				t.Errorf("%d events in a day, at most %d are right", events, most)
			}
			if d.idle(now) {
				t.Error("forgotten in the middle of it")
			}
			for range 2 * denialKinds { // what is left is told in time
				now = now.Add(denialEvery)
				for _, e := range d.due(now) {
					c, err := strconv.Atoi(e.Data["count"])
					if err != nil {
						t.Fatal(err)
					}
					told += c
				}
			}
			if told != n {
				t.Errorf("%d of %d are told of", told, n)
			}
			if now = now.Add(time.Hour); !d.idle(now) {
				t.Error("never forgotten")
			}
		})
	}
}
