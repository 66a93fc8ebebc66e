package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"sync"

	"ramet.dev/ramet/internal/sandbox"
)

// keyPrefix begins the secrets that we make, so that scanners recognise them. Any other is accepted too.
const keyPrefix = "rmt_"

// shownPrefix is how much of a secret a record shows, in bytes.
const shownPrefix = len(keyPrefix) + 6

// errKeyRevoked is the cause of calls that end because their key was revoked.
var errKeyRevoked = sandbox.Errorf(sandbox.NotFound, "key_revoked", "the api key was revoked during the call")

// CreateKey makes a key and returns its secret, which is kept nowhere. The project is
// made when it is new. Whether a caller may is MayUse.
func (c *Control) CreateKey(ctx context.Context, project, name string) (sandbox.Key, string, error) {
	return c.CreateKeyAs(ctx, project, name, KeyRamet)
}

// KeyFormat is the shape of a secret, for clients that check it.
type KeyFormat string

// The formats.
const (
	KeyRamet KeyFormat = "ramet" // rmt_ and base64; also what an empty one means
	KeyE2B   KeyFormat = "e2b"   // e2b_ and hexadecimal digits
)

// CreateKeyAs is CreateKey with a secret of a format.
func (c *Control) CreateKeyAs(ctx context.Context, project, name string, format KeyFormat) (sandbox.Key, string, error) {
	var b [32]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	var secret string
	switch format {
	case "", KeyRamet:
		secret = keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	case KeyE2B:
		secret = "e2b_" + hex.EncodeToString(b[:])
	default:
		return sandbox.Key{}, "", sandbox.Errorf(sandbox.Invalid, "invalid_format", "format %s does not exist; use %s or %s", shown(string(format)), KeyRamet, KeyE2B)
	}
	k, err := c.addKey(ctx, sandbox.Key{Project: project, Name: name}, secret)
	return k, secret, err
}

// AddAdminKey enters a key with a given secret that may do everything: the
// server's own from its data directory. When there is one with that secret it becomes an admin's.
func (c *Control) AddAdminKey(ctx context.Context, project, name, secret string) (sandbox.Key, error) {
	return c.addKey(ctx, sandbox.Key{Project: project, Name: name, Admin: true}, secret)
}

func (c *Control) addKey(ctx context.Context, k sandbox.Key, secret string) (sandbox.Key, error) {
	if k.Name == "" {
		k.Name = "key"
	}
	if err := firstOf(checkName(k.Name), checkProjectName(k.Project)); err != nil {
		return sandbox.Key{}, err
	}
	if len(secret) < 16 {
		return sandbox.Key{}, sandbox.Errorf(sandbox.Invalid, "key_too_short", "a key needs at least 16 characters")
	}
	var id [8]byte
	rand.Read(id[:])
	k.ID, k.Hash, k.Prefix = "key_"+hex.EncodeToString(id[:]), sha256.Sum256([]byte(secret)), secret[:shownPrefix]
	k, err := c.store.AddKey(ctx, k)
	if err == nil {
		c.log.Info("key entered", "key", k.ID, "project", k.Project, "admin", k.Admin)
	}
	return k, err
}

// Authenticate finds the key with a secret. A NotFound means that there is none.
// The context that it returns is for the whole call: it ends when the key is
// revoked. The function says that the call has ended.
func (c *Control) Authenticate(ctx context.Context, secret string) (context.Context, sandbox.Key, func(), error) {
	hash := sha256.Sum256([]byte(secret))
	ctx, cancel := context.WithCancelCause(ctx)
	// Enter the call first and look the key up then: a revocation in between finds the
	// call, one before it is found by the look-up.
	leave := c.calls.enter(hash, cancel)
	end := func() { leave(); cancel(nil) }
	k, err := c.store.KeyByHash(ctx, hash)
	if err != nil {
		end()
		return nil, k, func() {}, err
	}
	return ctx, k, end, nil
}

// callsOfKeys knows the calls under way, by the hash of their key.
type callsOfKeys struct {
	mu   sync.Mutex
	open map[[32]byte]map[*context.CancelCauseFunc]struct{} // guarded by mu
}

func (c *callsOfKeys) enter(hash [32]byte, cancel context.CancelCauseFunc) (leave func()) {
	entry := &cancel
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = make(map[[32]byte]map[*context.CancelCauseFunc]struct{})
	}
	if c.open[hash] == nil {
		c.open[hash] = make(map[*context.CancelCauseFunc]struct{})
	}
	c.open[hash][entry] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open[hash], entry)
		if len(c.open[hash]) == 0 {
			delete(c.open, hash)
		}
	}
}

func (c *callsOfKeys) end(hash [32]byte, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for cancel := range c.open[hash] {
		(*cancel)(cause)
	}
}

// Keys lists the keys of a project.
func (c *Control) Keys(ctx context.Context, project string) ([]sandbox.Key, error) {
	return c.store.Keys(ctx, project)
}

// DeleteKey revokes a key, of any project for an admin, else of the caller's own:
// the next call is refused, and calls under way end.
func (c *Control) DeleteKey(ctx context.Context, caller sandbox.Key, id string) error {
	k, err := c.store.Key(ctx, id)
	if err != nil {
		return err
	}
	if !caller.Admin {
		if k.Project != caller.Project {
			return sandbox.Errorf(sandbox.NotFound, "key_not_found", "key not found")
		}
		if k.Admin {
			return errAdminOnly
		}
	}
	if err := c.store.DeleteKey(ctx, id); err != nil {
		return err
	}
	c.calls.end(k.Hash, errKeyRevoked)
	c.log.Info("key revoked", "key", id, "project", k.Project)
	return nil
}
