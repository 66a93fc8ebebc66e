// Package image builds templates: the root filesystem, kernel and initrd that
// a sandbox starts from.
//
// A Definition says what goes in. Build turns it into an Artifact, a directory
// <templates>/<name>/<hash> that holds
//
//	rootfs.tar.zst  the root filesystem, the canonical form
//	rootfs.ext4     the same as a raw, sparse disk, derived for disk-based drivers
//	vmlinuz         the distribution's kernel
//	modules.cpio    the kernel modules of the initrd, kept to remake it
//	initrd.img      modules.cpio followed by the agent as /init
//	manifest.json   written last: a directory without it is not a build
//
// The hash is that of the inputs (see keys.go), so unchanged inputs build
// nothing. The root filesystem has a key of its own: a new agent only remakes
// the initrd and links the rest from an earlier build.
//
// The package does not boot anything and knows nothing of snapshots. Golden
// snapshots live in a subdirectory of the artifact that the worker owns.
//
// Start reading at Builder.Build; rootfs.go is the list of steps that make a
// root filesystem.
package image
