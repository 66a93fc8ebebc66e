package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store/storedb"
)

// AddKey enters a key, and its project when that is new. A key with the same secret
// that is there already is left as it is, but for becoming an admin's.
func (s *Store) AddKey(ctx context.Context, k sandbox.Key) (sandbox.Key, error) {
	// One that is there needs no room, also on a full disk.
	if old, err := s.KeyByHash(ctx, k.Hash); err == nil && (old.Admin || !k.Admin) {
		return old, nil
	}
	k.CreatedAt = s.now().UTC().Truncate(time.Microsecond)
	err := s.grow(ctx, func(q *storedb.Queries) error {
		if _, err := q.InsertProject(ctx, storedb.InsertProjectParams{Name: k.Project, CreatedAt: k.CreatedAt.UnixMicro()}); err != nil {
			return err
		}
		n, err := q.InsertKey(ctx, storedb.InsertKeyParams{
			ID: k.ID, Project: k.Project, Name: k.Name, Hash: k.Hash[:], Prefix: k.Prefix,
			Admin: number(k.Admin), CreatedAt: k.CreatedAt.UnixMicro(),
		})
		if err != nil || n == 1 {
			return err
		}
		if k.Admin {
			if err := q.MakeKeyAdmin(ctx, k.Hash[:]); err != nil {
				return err
			}
		}
		row, err := q.KeyByHash(ctx, k.Hash[:])
		if err != nil {
			return err
		}
		k, err = keyFromRow(row)
		return err
	})
	if err != nil {
		return sandbox.Key{}, fmt.Errorf("add key %s: %w", k.ID, err)
	}
	return k, nil
}

// KeyByHash finds the key whose secret has this SHA-256. Nothing is cached: a
// key that was revoked is gone for the next call.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (sandbox.Key, error) {
	row, err := s.read.KeyByHash(ctx, hash[:])
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Key{}, errKeyNotFound
	}
	if err != nil {
		return sandbox.Key{}, fmt.Errorf("look up a key: %w", err)
	}
	return keyFromRow(row)
}

// Keys returns the keys of a project, oldest first.
func (s *Store) Keys(ctx context.Context, project string) ([]sandbox.Key, error) {
	rows, err := s.read.ListKeys(ctx, project)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	keys := make([]sandbox.Key, 0, len(rows))
	for _, r := range rows {
		k, err := keyFromRow(r)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// Key returns a key by its id, whatever its project.
func (s *Store) Key(ctx context.Context, id string) (sandbox.Key, error) {
	row, err := s.read.GetKey(ctx, id)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Key{}, errKeyNotFound
	}
	if err != nil {
		return sandbox.Key{}, fmt.Errorf("look up key %s: %w", id, err)
	}
	return keyFromRow(row)
}

// DeleteKey revokes a key. Whether the caller may is the caller's to check.
func (s *Store) DeleteKey(ctx context.Context, id string) error {
	return s.tx(ctx, func(q *storedb.Queries) error {
		n, err := q.DeleteKey(ctx, id)
		if err != nil {
			return fmt.Errorf("delete a key: %w", err)
		}
		if n == 0 {
			return errKeyNotFound
		}
		return nil
	})
}

var errKeyNotFound = sandbox.Errorf(sandbox.NotFound, "key_not_found", "key not found")

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func keyFromRow(r storedb.Key) (sandbox.Key, error) {
	k := sandbox.Key{ID: r.ID, Name: r.Name, Project: r.Project, Prefix: r.Prefix, Admin: r.Admin != 0, CreatedAt: time.UnixMicro(r.CreatedAt).UTC()}
	if len(r.Hash) != len(k.Hash) {
		return k, fmt.Errorf("key %s: its hash has %d bytes", r.ID, len(r.Hash))
	}
	copy(k.Hash[:], r.Hash)
	return k, nil
}
