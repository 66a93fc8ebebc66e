package erofs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// metadata writes the directories' blocks and then the inodes, and returns the superblock.
func (w *writer) metadata() ([]byte, error) {
	nodes := w.order()
	place(nodes)
	for _, n := range nodes {
		if !n.isDir() {
			continue
		}
		data := n.dirents()
		n.block, n.size = w.next, uint64(len(data))
		if _, err := w.data(bytes.NewReader(data), int64(len(data))); err != nil {
			return nil, err
		}
	}
	meta := w.next
	at := uint64(0)
	for _, n := range nodes {
		if err := w.pad(int(n.nid<<slotBits - at)); err != nil {
			return nil, err
		}
		b := n.inode()
		if _, err := w.out.Write(b); err != nil {
			return nil, err
		}
		at = n.nid<<slotBits + uint64(len(b))
	}
	if over := int(at & (blockSize - 1)); over != 0 {
		if err := w.pad(blockSize - over); err != nil {
			return nil, err
		}
	}
	blocks := (at + blockSize - 1) >> blockBits
	if blocks > uint64(^uint32(0)-meta) {
		return nil, errors.New("the image is too large")
	}
	return superblock(nodes, meta, meta+uint32(blocks)), nil
}

func superblock(nodes []*node, meta, blocks uint32) []byte {
	b := make([]byte, 128)
	le := binary.LittleEndian
	le.PutUint32(b[0:], superMagic)
	b[12] = blockBits
	le.PutUint16(b[14:], uint16(nodes[0].nid)) // the root comes first
	le.PutUint64(b[16:], uint64(len(nodes)))
	le.PutUint32(b[36:], blocks)
	le.PutUint32(b[40:], meta)
	return b
}

// order lists every file once, the root first, directories in the order of their names: the
// same tar makes the same image.
func (w *writer) order() []*node {
	nodes := []*node{}
	seen := map[*node]bool{}
	var walk func(n *node)
	walk = func(n *node) {
		if seen[n] {
			return // another name of a file
		}
		seen[n] = true
		nodes = append(nodes, n)
		n.ino = uint32(len(nodes))
		for _, name := range n.names() {
			walk(n.children[name])
		}
	}
	walk(w.root)
	return nodes
}

func (n *node) names() []string {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// place gives each inode its slot. What is stored with an inode does not cross the end of a block.
func place(nodes []*node) {
	at := uint64(0)
	for _, n := range nodes {
		need := uint64(inodeSize + len(n.target))
		if left := blockSize - at&(blockSize-1); n.target != "" && need > left {
			at += left
		}
		n.nid = at >> slotBits
		at = (at + need + 1<<slotBits - 1) &^ (1<<slotBits - 1)
	}
}

func (n *node) inode() []byte {
	b := make([]byte, inodeSize, inodeSize+len(n.target))
	le := binary.LittleEndian
	layout := uint16(layoutPlain)
	if n.target != "" {
		layout = layoutInline
	}
	le.PutUint16(b[0:], layout<<1|1) // the extended form
	le.PutUint16(b[4:], n.mode)
	le.PutUint64(b[8:], n.size)
	switch n.mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
		le.PutUint32(b[16:], n.rdev)
	case unix.S_IFREG, unix.S_IFDIR:
		le.PutUint32(b[16:], n.block)
	}
	le.PutUint32(b[20:], n.ino)
	le.PutUint32(b[24:], n.uid)
	le.PutUint32(b[28:], n.gid)
	if !n.mtime.IsZero() {
		le.PutUint64(b[32:], uint64(n.mtime.Unix()))
		le.PutUint32(b[40:], uint32(n.mtime.Nanosecond()))
	}
	le.PutUint32(b[44:], n.links)
	return append(b, n.target...)
}

// dirents is the content of a directory: in each block first the entries, sorted by name, then their names.
func (n *node) dirents() []byte {
	type entry struct {
		name string
		of   *node
	}
	entries := []entry{{".", n}, {"..", n.parent}}
	for _, name := range n.names() {
		entries = append(entries, entry{name, n.children[name]})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var out []byte
	for len(entries) > 0 {
		count, used := 0, 0
		for count < len(entries) && used+direntLen+len(entries[count].name) <= blockSize {
			used += direntLen + len(entries[count].name)
			count++
		}
		if over := len(out) & (blockSize - 1); over != 0 {
			out = append(out, make([]byte, blockSize-over)...)
		}
		nameAt := count * direntLen
		for _, e := range entries[:count] {
			var d [direntLen]byte
			binary.LittleEndian.PutUint64(d[:], e.of.nid)
			binary.LittleEndian.PutUint16(d[8:], uint16(nameAt))
			d[10] = fileType(e.of.mode)
			out = append(out, d[:]...)
			nameAt += len(e.name)
		}
		for _, e := range entries[:count] {
			out = append(out, e.name...)
		}
		entries = entries[count:]
	}
	return out
}

func fileType(mode uint16) byte {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 1
	case unix.S_IFDIR:
		return 2
	case unix.S_IFCHR:
		return 3
	case unix.S_IFBLK:
		return 4
	case unix.S_IFIFO:
		return 5
	case unix.S_IFLNK:
		return 7
	}
	return 0
}
