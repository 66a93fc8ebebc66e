package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	"ramet.dev/ramet/internal/sandbox"
)

// keyPrefix begins the secrets that we make, so that scanners recognise them. Any other is accepted too.
const keyPrefix = "rmt_"

// shownPrefix is how much of a secret a record shows, in bytes.
const shownPrefix = len(keyPrefix) + 6

// CreateKey makes a key and returns its secret, which is kept nowhere.
func (c *Control) CreateKey(ctx context.Context, project, name string) (sandbox.Key, string, error) {
	var b [32]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	secret := keyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	k, err := c.AddKey(ctx, project, name, secret)
	return k, secret, err
}

// AddKey enters a key with a given secret, such as the server's own from its
// data directory. When there is one with that secret it is returned.
func (c *Control) AddKey(ctx context.Context, project, name, secret string) (sandbox.Key, error) {
	if name == "" {
		name = "key"
	}
	if err := checkName(name); err != nil {
		return sandbox.Key{}, err
	}
	if len(secret) < 16 {
		return sandbox.Key{}, sandbox.Errorf(sandbox.Invalid, "key_too_short", "a key needs at least 16 characters")
	}
	var id [8]byte
	rand.Read(id[:])
	k, err := c.store.AddKey(ctx, sandbox.Key{
		ID: "key_" + hex.EncodeToString(id[:]), Name: name, Project: project,
		Hash: sha256.Sum256([]byte(secret)), Prefix: secret[:shownPrefix],
	})
	if err == nil {
		c.log.Info("key entered", "key", k.ID, "project", project)
	}
	return k, err
}

// Authenticate finds the key with a secret. A NotFound means that there is none.
func (c *Control) Authenticate(ctx context.Context, secret string) (sandbox.Key, error) {
	return c.store.KeyByHash(ctx, sha256.Sum256([]byte(secret)))
}

// Keys lists the keys of a project.
func (c *Control) Keys(ctx context.Context, project string) ([]sandbox.Key, error) {
	return c.store.Keys(ctx, project)
}

// DeleteKey revokes a key of a project, from the next call on.
func (c *Control) DeleteKey(ctx context.Context, project, id string) error {
	if err := c.store.DeleteKey(ctx, project, id); err != nil {
		return err
	}
	c.log.Info("key revoked", "key", id, "project", project)
	return nil
}
