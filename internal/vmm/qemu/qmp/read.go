package qmp

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
)

// message is any line that QEMU sends.
type message struct {
	QMP    json.RawMessage `json:"QMP"`
	ID     string          `json:"id"`
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// errLineTooLong is a line above maxLine.
var errLineTooLong = errors.New("line too long")

// readMessage reads one line of at most maxLine bytes.
func readMessage(r *bufio.Reader) (message, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return message{}, errLineTooLong
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return message{}, err
		}
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, fmt.Errorf("bad line: %w", err)
	}
	return m, nil
}

// read is the connection's one reader. It ends when the connection does.
func (c *Client) read(greeted chan<- struct{}) {
	defer close(c.done)
	r := bufio.NewReaderSize(c.conn, 64<<10)
	err := c.readAll(r, greeted)
	c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.err = err
	}
	c.pending = nil
	for s := range c.subs {
		close(s.c)
	}
	c.subs = nil
}

func (c *Client) readAll(r *bufio.Reader, greeted chan<- struct{}) error {
	first := true
	for {
		m, err := readMessage(r)
		if err != nil {
			return err
		}
		switch {
		case first:
			if m.QMP == nil {
				return errors.New("the first message is not a greeting")
			}
			first = false
			close(greeted)
		case m.Event != "":
			c.deliver(Event{Name: m.Event, Data: m.Data})
		case m.ID != "":
			c.answer(m)
		}
	}
}

func (c *Client) answer(m message) {
	r := reply{Return: m.Return}
	if m.Error != nil {
		r.Err = &Error{Class: m.Error.Class, Desc: m.Error.Desc}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch, ok := c.pending[m.ID]; ok {
		delete(c.pending, m.ID) // an id is answered once; the channel holds one
		ch <- r
	}
}
