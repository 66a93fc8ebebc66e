package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"ramet.dev/ramet/internal/config"
	"ramet.dev/ramet/internal/store"
)

// storeFiles names what a backup is made of.
func storeFiles(home config.Home) store.Files {
	return store.Files{Dir: string(home), Database: home.Database(), Key: home.Key()}
}

// Restore puts a backup into the data directory. A server that uses the directory
// has its lock, and then nothing is restored.
func Restore(ctx context.Context, cfg config.Server, backup io.Reader, force bool) (err error) {
	if err := os.MkdirAll(cfg.Home, 0o711); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	home := config.Home(cfg.Home)
	lock, err := store.LockFile(ctx, home.Lock())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	return store.RestoreBackup(ctx, storeFiles(home), backup, force)
}
