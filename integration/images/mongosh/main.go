// Command mongosh stands in for MongoDB's shell in the local images. It evaluates only the few
// expressions that testcontainers' MongoDB module, and the health checks and the init job of
// the examples, use.
//
//	mongosh [--quiet] [mongodb://HOST/…] --eval EXPRESSION
//
// EXPRESSION is rs.status(), rs.initiate({…}), db.hello() or db.adminCommand('name' or {…}),
// optionally followed by .field.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mongosh:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	uri, expression := "mongodb://127.0.0.1/?directConnection=true", ""
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--quiet":
		case arg == "--eval" && i+1 < len(args):
			i++
			expression = args[i]
		case strings.HasPrefix(arg, "mongodb://"):
			uri = arg
		default:
			return fmt.Errorf("unknown argument %q; this stand-in knows --quiet, --eval and mongodb://…", arg)
		}
	}
	command, field, err := parse(expression)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(ctx) }()
	answer, err := client.Database("admin").RunCommand(ctx, command).Raw()
	if err != nil {
		return err
	}
	if field == "" {
		fmt.Println(answer)
		return nil
	}
	value, err := answer.LookupErr(strings.Split(field, ".")...)
	if err != nil {
		return fmt.Errorf("the answer has no %s", field)
	}
	fmt.Println(value)
	return nil
}

// parse converts an expression into a command and the requested field of its answer.
func parse(expression string) (command bson.D, field string, err error) {
	call, rest, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(expression), ";"), "(")
	end := strings.LastIndex(rest, ")")
	if !ok || end < 0 {
		return nil, "", fmt.Errorf("unknown expression %q; this stand-in knows only rs.status, rs.initiate, db.hello and db.adminCommand",
			expression)
	}
	argument := strings.TrimSpace(rest[:end])
	field = strings.TrimPrefix(rest[end+1:], ".")
	switch call {
	case "rs.status":
		return bson.D{{Key: "replSetGetStatus", Value: 1}}, field, nil
	case "db.hello":
		return bson.D{{Key: "hello", Value: 1}}, field, nil
	case "rs.initiate":
		config, err := literal(argument)
		return bson.D{{Key: "replSetInitiate", Value: config}}, field, err
	case "db.adminCommand":
		if name := strings.Trim(argument, `'"`); name != argument {
			return bson.D{{Key: name, Value: 1}}, field, nil
		}
		command, err := literal(argument)
		return command, field, err
	}
	return nil, "", fmt.Errorf("unknown function %s; this stand-in knows only rs.status, rs.initiate, db.hello and db.adminCommand", call)
}

// literal parses a JavaScript object literal: names without quotes, strings in single or double
// quotes.
func literal(text string) (bson.D, error) {
	var json strings.Builder
	for text != "" {
		switch c := text[0]; {
		case c == '\'' || c == '"':
			end := strings.IndexByte(text[1:], c)
			if end < 0 {
				return nil, errors.New("a string is not closed")
			}
			json.WriteString(`"` + text[1:end+1] + `"`)
			text = text[end+2:]
		case isName(c):
			end := strings.IndexFunc(text, func(r rune) bool { return r > 127 || !isName(byte(r)) && (r < '0' || r > '9') })
			if end < 0 {
				end = len(text)
			}
			if word := text[:end]; word == "true" || word == "false" || word == "null" {
				json.WriteString(word)
			} else {
				json.WriteString(`"` + word + `"`)
			}
			text = text[end:]
		default:
			json.WriteByte(c)
			text = text[1:]
		}
	}
	var d bson.D
	err := bson.UnmarshalExtJSON([]byte(json.String()), false, &d)
	return d, err
}

func isName(c byte) bool {
	return c == '_' || c == '$' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
