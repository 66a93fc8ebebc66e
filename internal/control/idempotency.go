package control

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// keepAnswers is how long the answers of idempotent calls are kept.
const keepAnswers = 24 * time.Hour

// IdempotentCall is a call that may come twice and shall be made once.
type IdempotentCall struct {
	Scope   string   // id of the caller's API key
	Secret  string   // that key itself; answers are sealed with it
	Key     string   // what the caller named the call
	Request [32]byte // SHA-256 of everything that is asked
}

// Tag names the call in the record of what it makes.
func (ic IdempotentCall) Tag() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s%d:%s", len(ic.Scope), ic.Scope, len(ic.Key), ic.Key)
	h.Write(ic.Request[:])
	return hex.EncodeToString(h.Sum(nil))
}

var errKeyReused = sandbox.Errorf(sandbox.Conflict, "idempotency_key_reused",
	"this idempotency key was used for another request; use a new key for every request that is not a repetition")

// flights knows the idempotent calls under way.
type flights struct {
	mu   sync.Mutex
	open map[flightKey]*flight // guarded by mu
}

type flightKey struct{ scope, key string }

type flight struct {
	request [32]byte
	done    chan struct{}
}

// Once makes a call whose key was not seen before and keeps its answer for a day; to
// a repetition it gives the answer that is kept. A repetition during the call waits
// for it. Run returns the answer and whether to keep it: after one that is not kept
// the next repetition makes the call again.
func (c *Control) Once(ctx context.Context, ic IdempotentCall, run func(context.Context) (answer []byte, keep bool)) (answer []byte, replayed bool, err error) {
	if len(ic.Key) > 255 || hasControl(ic.Key) {
		return nil, false, sandbox.Errorf(sandbox.Invalid, "invalid_idempotency_key", "an idempotency key has 1 to 255 bytes of printable text")
	}
	land, err := c.once.take(ctx, ic)
	if err != nil {
		return nil, false, err
	}
	defer land()
	key := sha256.Sum256([]byte(ic.Key))
	kept, err := c.store.Answer(ctx, ic.Scope, key, time.Now().Add(-keepAnswers))
	if err != nil {
		return nil, false, err
	}
	if kept != nil {
		if kept.Request != ic.Request {
			return nil, false, errKeyReused
		}
		answer, err := ic.open(kept.Sealed)
		return answer, true, err
	}
	answer, keep := run(ctx)
	if !keep {
		return answer, false, nil
	}
	sealed, err := ic.seal(answer)
	if err == nil {
		err = c.store.PutAnswer(context.WithoutCancel(ctx), ic.Scope, key, store.Answer{Request: ic.Request, Sealed: sealed})
	}
	if err != nil {
		// The call has done its work; a repetition of a create still finds the sandbox.
		c.log.Error("keep the answer of an idempotent call", "key", ic.Scope, "err", err)
	}
	return answer, false, nil
}

// take waits until no call with the key is under way, and is the one then.
func (f *flights) take(ctx context.Context, ic IdempotentCall) (land func(), err error) {
	k := flightKey{ic.Scope, ic.Key}
	for {
		f.mu.Lock()
		other := f.open[k]
		if other == nil {
			mine := &flight{request: ic.Request, done: make(chan struct{})}
			if f.open == nil {
				f.open = make(map[flightKey]*flight)
			}
			f.open[k] = mine
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.open, k)
				close(mine.done)
			}, nil
		}
		f.mu.Unlock()
		if other.request != ic.Request {
			return nil, errKeyReused
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the same call: %w", context.Cause(ctx))
		}
	}
}

// cipher is made of what only the caller has: the database keeps neither secret.
func (ic IdempotentCall) cipher() (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(ic.Secret+"\x00"+ic.Key), nil, "ramet idempotent answer v1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key of an answer: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive the key of an answer: %w", err)
	}
	return cipher.NewGCM(block)
}

func (ic IdempotentCall) seal(answer []byte) ([]byte, error) {
	aead, err := ic.cipher()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce) // never fails, see crypto/rand
	return aead.Seal(nonce, nonce, answer, nil), nil
}

func (ic IdempotentCall) open(sealed []byte) ([]byte, error) {
	aead, err := ic.cipher()
	if err != nil {
		return nil, err
	}
	if len(sealed) < aead.NonceSize() {
		return nil, errors.New("the kept answer is too short")
	}
	answer, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], nil)
	if err != nil {
		return nil, fmt.Errorf("open the kept answer: %w", err)
	}
	return answer, nil
}
