package store_test

import (
	"bytes"
	"path/filepath"
	"sync"
	"testing"

	"ramet.dev/ramet/internal/store"
)

func TestSecretsStayTheSame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ramet.db")
	s, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	made := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			var err error
			if made[i], err = s.Secret(t.Context(), "traffic"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	other, err := s.Secret(t.Context(), "other")
	if err != nil || bytes.Equal(other, made[0]) {
		t.Errorf("another one: %x, %v", other, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	again, err := s.Secret(t.Context(), "traffic")
	if err != nil || len(again) != 32 {
		t.Fatalf("%x, %v", again, err)
	}
	for _, b := range made {
		if !bytes.Equal(b, again) {
			t.Errorf("it was %x and is %x", b, again)
		}
	}
}
