// Package rametv1 is generated from api/openapi.yaml: the types of the API, a
// client, and the server's routes. Edit the specification, then run go generate
// in this folder.
package rametv1

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config types.cfg.yaml ../../openapi.yaml
//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config client.cfg.yaml ../../openapi.yaml
//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config server.cfg.yaml ../../openapi.yaml
