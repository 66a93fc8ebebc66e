package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"

	"ramet.dev/ramet/internal/store/storedb"
)

// Secret returns 32 random bytes that are made up when a name is first asked for, and are
// the same from then on. They are part of a backup.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	value, err := s.read.GetSecret(ctx, name)
	if errors.Is(err, sql.ErrNoRows) {
		fresh := make([]byte, 32)
		rand.Read(fresh) // never fails, see crypto/rand
		err = s.grow(ctx, func(q *storedb.Queries) error {
			if err := q.PutSecret(ctx, storedb.PutSecretParams{Name: name, Value: fresh}); err != nil {
				return err
			}
			value, err = q.GetSecret(ctx, name)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the secret %q: %w", name, err)
	}
	return value, nil
}
