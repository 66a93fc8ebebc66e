package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"ramet.dev/ramet/internal/control"
)

const (
	// maxBody bounds a JSON body, maxCodeBody one that carries code, in bytes.
	maxBody     = 1 << 20
	maxCodeBody = control.MaxCode + 64<<10
)

// decode reads the JSON object of a request into v, a pointer to a struct, strictly.
// An empty body is an object without fields when empty is set.
func decode(w http.ResponseWriter, r *http.Request, limit int64, empty bool, v any) error {
	if err := checkContentType(r); err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return &httpError{
				status: http.StatusRequestEntityTooLarge, code: "body_too_large",
				message: fmt.Sprintf("the body is too large; it can have %d bytes", limit),
			}
		}
		return &httpError{status: http.StatusBadRequest, code: "body_broken_off", message: "the request's body ended early; send it again as a whole", err: err}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		if empty {
			return nil
		}
		return badRequest("invalid_json", "the body is empty; it has to be a JSON object")
	}
	if !utf8.Valid(body) {
		return badRequest("invalid_json", "the body is not valid UTF-8")
	}
	fields, err := topLevel(body)
	if err != nil {
		return err
	}
	if err := checkFields(fields, reflect.TypeOf(v).Elem()); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return explainJSON(err)
	}
	return nil
}

// checkContentType accepts JSON, and a body that does not say what it is.
func checkContentType(r *http.Request) error {
	header := r.Header.Get("Content-Type")
	if header == "" {
		return nil
	}
	if t, _, err := mime.ParseMediaType(header); err == nil && (t == "application/json" || strings.HasSuffix(t, "+json")) {
		return nil
	}
	return &httpError{
		status: http.StatusUnsupportedMediaType, code: "unsupported_media_type",
		message: "the body has to be JSON; send the header Content-Type: application/json",
	}
}

// checkFields refuses names that an object does not have, also in the objects that
// it holds by name.
func checkFields(fields map[string]json.RawMessage, t reflect.Type) error {
	known := fieldNames(t)
	for name, raw := range fields {
		if !slices.Contains(known, name) {
			return badRequest("unknown_field", "the field %q does not exist; there are %s", short(name), strings.Join(known, ", "))
		}
		inner := fieldOf(t, name)
		for inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		var object map[string]json.RawMessage
		if inner.Kind() != reflect.Struct || json.Unmarshal(raw, &object) != nil {
			continue // what is no object is found by the one who reads it
		}
		if err := checkFields(object, inner); err != nil {
			return err
		}
	}
	return nil
}

func topLevel(body []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, explainJSON(err)
	}
	if fields == nil { // null
		return nil, badRequest("invalid_json", "the body has to be a JSON object")
	}
	return fields, nil
}

// explainJSON makes a sentence of what encoding/json found.
func explainJSON(err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field == "":
		return badRequest("invalid_json", "the body has to be a JSON object")
	case errors.As(err, &typ):
		return badRequest("invalid_type", "%s has to be %s, not %s", typ.Field, jsonName(typ.Type), typ.Value)
	case errors.As(err, &syntax):
		return badRequest("invalid_json", "the body is not valid JSON, at byte %d", syntax.Offset)
	}
	return badRequest("invalid_json", "the body is not valid JSON")
}

// jsonName says what a Go type is in JSON.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonName(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return "an object"
}

// fieldNames are the JSON names of a struct's fields.
func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fieldOf is the type of the field with a JSON name, which is there.
func fieldOf(t reflect.Type, name string) reflect.Type {
	for i := range t.NumField() {
		if known, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); known == name {
			return t.Field(i).Type
		}
	}
	return nil
}

// short bounds a caller's text in a message.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

// value returns what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
