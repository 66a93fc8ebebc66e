package agent

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codec encodes messages as Connect's own does, and also those that hold names which are no UTF-8.
// The kernel takes any bytes for a name of a file, and a message takes only text: without this a
// directory could not be listed because of one file in it. What is no text is U+FFFD for the host.
type codec struct{}

// Name is that of the codec in whose place it is.
func (codec) Name() string { return "proto" }

func (c codec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

func (codec) MarshalAppend(b []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode a %T: it is no message", message)
	}
	out, err := proto.MarshalOptions{}.MarshalAppend(b, m)
	if err == nil {
		return out, nil
	}
	// A copy: what sends it may still use it, for others too.
	m = proto.Clone(m)
	makeText(m.ProtoReflect())
	return proto.MarshalOptions{}.MarshalAppend(b, m)
}

func (codec) Unmarshal(b []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("decode a %T: it is no message", message)
	}
	return proto.Unmarshal(b, m)
}

// makeText replaces what is no text in all strings of a message, and in those within it.
func makeText(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			makeMapText(f, v.Map())
		case f.IsList():
			for i := range v.List().Len() {
				if isMessage(f) {
					makeText(v.List().Get(i).Message())
				} else if f.Kind() == protoreflect.StringKind {
					v.List().Set(i, asText(v.List().Get(i)))
				}
			}
		case isMessage(f):
			makeText(v.Message())
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, asText(v))
		}
		return true
	})
}

func makeMapText(f protoreflect.FieldDescriptor, entries protoreflect.Map) {
	entries.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		switch {
		case isMessage(f.MapValue()):
			makeText(v.Message())
		case f.MapValue().Kind() == protoreflect.StringKind:
			v = asText(v)
		}
		if f.MapKey().Kind() == protoreflect.StringKind {
			entries.Clear(k)
			k = asText(k.Value()).MapKey()
		}
		entries.Set(k, v)
		return true
	})
}

func isMessage(f protoreflect.FieldDescriptor) bool { return f.Message() != nil }

func asText(v protoreflect.Value) protoreflect.Value {
	return protoreflect.ValueOfString(strings.ToValidUTF8(v.String(), "\uFFFD"))
}
