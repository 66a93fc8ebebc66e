package store

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"ramet.dev/ramet/internal/durable"
	"ramet.dev/ramet/internal/sandbox"
)

// A backup is a gzipped tar with manifest.json first, then the files that it
// names: a consistent copy of the database, and the server's own key.
const (
	backupFormat   = 1
	backupDatabase = "ramet.db"
	backupKey      = "key"
	backupManifest = "manifest.json"
	// tempPattern names what is left of a backup or restore that was cut short.
	tempPattern = "backup-*.tmp"
)

// manifest says what is in a backup.
type manifest struct {
	Format    int          `json:"format"`
	CreatedAt time.Time    `json:"created_at"`
	Files     []backupFile `json:"files"`
}

type backupFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Files are the paths of a data directory that a backup is about.
type Files struct {
	Dir, Database, Key string
	// Disk makes the changes of files that have to survive a power cut.
	Disk *durable.Disk
}

// Backup writes a backup to w while the store is in use. It needs room for one copy
// of the database in the data directory.
func (s *Store) Backup(ctx context.Context, files Files, w io.Writer) (err error) {
	copied, err := s.copyDatabase(ctx, files)
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(copied)) }()
	m := manifest{Format: backupFormat, CreatedAt: s.now().UTC().Truncate(time.Second)}
	sources := map[string]string{backupDatabase: copied, backupKey: files.Key}
	for _, name := range []string{backupDatabase, backupKey} {
		f, err := describeFile(name, sources[name])
		if err != nil {
			return err
		}
		m.Files = append(m.Files, f)
	}
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	if err := tw.WriteHeader(&tar.Header{Name: backupManifest, Mode: 0o600, Size: int64(len(b)), ModTime: m.CreatedAt}); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if _, err := tw.Write(b); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	for _, f := range m.Files {
		if err := addFile(ctx, tw, f, sources[f.Name], m.CreatedAt); err != nil {
			return err
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

// copyDatabase makes a copy on a connection of its own, so that neither readers
// nor the writer wait.
func (s *Store) copyDatabase(ctx context.Context, files Files) (path string, err error) {
	f, err := os.CreateTemp(files.Dir, tempPattern)
	if err != nil {
		return "", err
	}
	path = f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := f.Close(); err != nil { // empty, which VACUUM INTO accepts
		return "", err
	}
	db, err := open(files.Database, url.Values{"_pragma": {"busy_timeout(5000)"}}, 1)
	if err != nil {
		return "", err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	return path, errors.Join(err, db.Close())
}

func describeFile(name, path string) (backupFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return backupFile{}, fmt.Errorf("back up %s: %w", name, err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return backupFile{}, fmt.Errorf("back up %s: %w", name, err)
	}
	return backupFile{Name: name, Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

func addFile(ctx context.Context, tw *tar.Writer, f backupFile, path string, at time.Time) error {
	src, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("back up %s: %w", f.Name, err)
	}
	defer src.Close()
	if err := tw.WriteHeader(&tar.Header{Name: f.Name, Mode: 0o600, Size: f.Size, ModTime: at}); err != nil {
		return fmt.Errorf("back up %s: %w", f.Name, err)
	}
	if _, err := io.CopyN(tw, src, f.Size); err != nil {
		return fmt.Errorf("back up %s: %w", f.Name, err)
	}
	return ctx.Err()
}

// RestoreBackup puts the files of a backup into a data directory that no server uses;
// the caller holds its lock. Records that are there are only replaced with force,
// and then kept beside the new ones. Nothing is replaced before all of the backup was read and checked.
func RestoreBackup(ctx context.Context, files Files, r io.Reader, force bool) (err error) {
	if err := RemoveTemporary(files.Dir); err != nil {
		return err
	}
	if _, err := os.Stat(files.Database); err == nil && !force {
		return sandbox.Errorf(sandbox.Conflict, "has_records",
			"%s has records already; with --force they are put aside as %s.before-restore", files.Dir, filepath.Base(files.Database))
	}
	temp, err := os.MkdirTemp(files.Dir, tempPattern)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := unpackBackup(files.Disk, temp, r); err != nil {
		return err
	}
	database := filepath.Join(temp, backupDatabase)
	if err := checkDatabase(ctx, database); err != nil {
		return err
	}
	return install(files, database, filepath.Join(temp, backupKey))
}

// RemoveTemporary removes what backups and restores that were cut short have left.
func RemoveTemporary(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tempPattern))
	if err != nil {
		return fmt.Errorf("look for old backups: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
}

func badBackup(err error, format string, args ...any) error {
	e := sandbox.Errorf(sandbox.Invalid, "bad_backup", "this is not a whole backup: "+format, args...)
	e.Err = err
	return e
}

// unpackBackup writes the files of a backup into dir and checks each.
func unpackBackup(disk *durable.Disk, dir string, r io.Reader) error {
	zr, err := gzip.NewReader(r)
	if err != nil {
		return badBackup(err, "it is not compressed by gzip")
	}
	tr := tar.NewReader(zr)
	h, err := tr.Next()
	if err != nil || h.Name != backupManifest || h.Size > 1<<20 {
		return badBackup(err, "its first entry is no manifest")
	}
	var m manifest
	if err := json.NewDecoder(tr).Decode(&m); err != nil {
		return badBackup(err, "its manifest cannot be read")
	}
	if m.Format != backupFormat {
		return badBackup(nil, "its format is %d and this version knows %d", m.Format, backupFormat)
	}
	want := map[string]backupFile{}
	for _, f := range m.Files {
		want[f.Name] = f
	}
	for _, name := range []string{backupDatabase, backupKey} {
		h, err := tr.Next()
		f, ok := want[name]
		if err != nil || h.Name != name || !ok || h.Size != f.Size {
			return badBackup(err, "%s is missing or not as the manifest says", name)
		}
		if err := unpackFile(disk, filepath.Join(dir, name), tr, f); err != nil {
			return err
		}
	}
	if _, err := tr.Next(); !errors.Is(err, io.EOF) {
		return badBackup(err, "something follows its last file")
	}
	// The end of the compressed stream has the checksum of all of it.
	if n, err := io.Copy(io.Discard, io.LimitReader(zr, 1<<20)); err != nil || n == 1<<20 {
		return badBackup(err, "its end is damaged")
	}
	return nil
}

func unpackFile(disk *durable.Disk, path string, r io.Reader, f backupFile) error {
	out, err := disk.Open("restore.unpack", path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("restore %s: %w", f.Name, err)
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), r)
	if err != nil {
		return errors.Join(badBackup(err, "%s breaks off", f.Name), out.Close())
	}
	if err := errors.Join(disk.Sync("restore.unpack", out), out.Close()); err != nil {
		return fmt.Errorf("restore %s: %w", f.Name, err)
	}
	if hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return badBackup(nil, "the checksum of %s is wrong", f.Name)
	}
	return nil
}

// checkDatabase opens a copy as the server would, which brings it up to date.
func checkDatabase(ctx context.Context, path string) error {
	s, err := Open(ctx, path)
	if err != nil {
		return badBackup(err, "its database cannot be opened")
	}
	var verdict string
	err = s.writer.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict)
	if err == nil && verdict != "ok" {
		err = badBackup(nil, "its database is damaged: %s", verdict)
	}
	return errors.Join(err, s.Close())
}

// install puts checked files in their places. The key comes first: a server that
// finds a key without records enters it, records without their key are not reachable.
func install(files Files, database, key string) error {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		err := files.Disk.Rename("restore.aside", files.Database+suffix, files.Database+".before-restore"+suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("put the old records aside: %w", err)
		}
	}
	for _, f := range []struct{ from, to string }{{key, files.Key}, {database, files.Database}} {
		if err := files.Disk.Rename("restore.place", f.from, f.to); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	if err := files.Disk.SyncDir("restore.place", files.Dir); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}
