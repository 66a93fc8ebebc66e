// Package files serves the guest's files to the host, with the rights of a user
// of the guest. The kernel decides what that user may do; nothing here checks
// permissions by itself.
//
// A file arrives under a temporary name beside its final one and is renamed when
// it is complete, so it is replaced as a whole or not at all. Everything
// streams; memory use does not depend on the size of a file or a directory.
//
// How changes are found is package watch's. It does not know the host's paths. Start
// reading at Service, then identity.go for how a call acts as its user.
package files
