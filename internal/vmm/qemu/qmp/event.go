package qmp

import (
	"context"
	"fmt"
	"sync/atomic"
)

// subscriptionBuffer is how many events wait for a subscriber. Those beyond
// it are dropped and counted, because a guest can cause events at will.
const subscriptionBuffer = 64

// Subscription receives the events of certain names.
type Subscription struct {
	client *Client
	names  map[string]bool
	c      chan Event
	lost   atomic.Int64
}

// Subscribe starts to collect events with the given names. Subscribe before
// running the command whose events are wanted. Close the subscription when done.
func (c *Client) Subscribe(names ...string) *Subscription {
	s := &Subscription{client: c, names: make(map[string]bool, len(names)), c: make(chan Event, subscriptionBuffer)}
	for _, n := range names {
		s.names[n] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subs == nil {
		close(s.c)
	} else {
		c.subs[s] = true
	}
	return s
}

// Close ends the subscription. Idempotent.
func (s *Subscription) Close() {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	delete(s.client.subs, s)
}

// Next waits for the next event.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	select {
	case e, ok := <-s.c:
		if !ok {
			return Event{}, fmt.Errorf("wait for an event: %w", s.client.closedErr())
		}
		return e, nil
	case <-ctx.Done():
		return Event{}, fmt.Errorf("wait for an event: %w", context.Cause(ctx))
	}
}

// C is the channel of events; it is closed when the connection ends.
func (s *Subscription) C() <-chan Event { return s.c }

// Lost is the number of events that were dropped because nobody read them.
func (s *Subscription) Lost() int64 { return s.lost.Load() }

func (c *Client) deliver(e Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		if !s.names[e.Name] {
			continue
		}
		select {
		case s.c <- e:
		default:
			s.lost.Add(1)
		}
	}
}
