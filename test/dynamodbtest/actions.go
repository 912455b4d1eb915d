package dynamodbtest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// input is what a request has, whatever its action is.
type input struct {
	TableName                           string
	Key, Item                           Item
	ConsistentRead                      bool
	ConditionExpression                 string
	UpdateExpression                    string
	FilterExpression                    string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           Item
	ReturnValuesOnConditionCheckFailure string
	ExclusiveStartKey                   Item
	Limit                               int
	RequestItems                        map[string]struct {
		Keys           []Item
		ConsistentRead bool
	}
	TransactItems []struct{ ConditionCheck, Put *input }
	BillingMode   string
	KeySchema     []any

	AttributeDefinitions []any
}

// about is the key of a request, or the prefix of a scan.
func (in *input) about() string {
	switch {
	case in.Key != nil:
		return in.Key.key()
	case in.Item != nil:
		return in.Item.key()
	case in.ExpressionAttributeValues[":prefix"].S != nil:
		return *in.ExpressionAttributeValues[":prefix"].S
	}
	return ""
}

// asksFor reports whether a batch has a key.
func (in *input) asksFor(key string) bool {
	for _, b := range in.RequestItems {
		if slices.ContainsFunc(b.Keys, func(i Item) bool { return i.key() == key }) {
			return true
		}
	}
	return false
}

// isWeak reports whether a request reads items without strong consistency.
func (in *input) isWeak(action string) bool {
	for _, b := range in.RequestItems {
		if !b.ConsistentRead {
			return true
		}
	}
	return !in.ConsistentRead && (action == "GetItem" || action == "Scan")
}

const (
	// maxItem is how long an item may be.
	maxItem = 400 << 10
	// mostOfBatch is how many items a batch reads at a time, as if they were long.
	mostOfBatch = 10
)

// answer does what a request asks for.
func (s *Server) answer(w http.ResponseWriter, action string, in input) {
	tables := []string{in.TableName}
	for name := range in.RequestItems {
		tables = append(tables, name)
	}
	for _, x := range in.TransactItems {
		for _, part := range []*input{x.ConditionCheck, x.Put} {
			if part != nil {
				tables = append(tables, part.TableName)
			}
		}
	}
	for _, name := range tables {
		if name != "" && s.tables[name] == nil && action != "CreateTable" {
			fail(w, http.StatusBadRequest, "ResourceNotFoundException", "Requested resource not found")
			return
		}
	}
	at := in.TableName + " " + in.about()
	switch action {
	case "GetItem":
		if i, exists := s.items[at]; exists {
			answer(w, map[string]any{"Item": i})
			return
		}
		answer(w, struct{}{})
	case "PutItem":
		s.put(w, in, at)
	case "UpdateItem":
		s.update(w, in, at)
	case "DeleteItem":
		if !in.holds(s.items[at]) {
			s.refuse(w, in, at)
			return
		}
		delete(s.items, at)
		answer(w, struct{}{})
	case "BatchGetItem":
		s.batch(w, in)
	case "Scan":
		s.scan(w, in)
	case "TransactWriteItems":
		s.transact(w, in)
	case "CreateTable":
		if s.tables[in.TableName] != nil {
			fail(w, http.StatusBadRequest, "ResourceInUseException", "Table already exists: "+in.TableName)
			return
		}
		t := map[string]any{"TableStatus": "CREATING", "KeySchema": in.KeySchema, "AttributeDefinitions": in.AttributeDefinitions,
			"BillingModeSummary": map[string]any{"BillingMode": in.BillingMode}}
		s.tables[in.TableName] = t
		answer(w, map[string]any{"TableDescription": t})
	case "DescribeTable":
		answer(w, map[string]any{"Table": s.tables[in.TableName]})
		if t := s.tables[in.TableName]; t["TableStatus"] == "CREATING" {
			t = maps.Clone(t)
			t["TableStatus"] = "ACTIVE"
			s.tables[in.TableName] = t
		}
	case "DescribeTimeToLive":
		answer(w, map[string]any{"TimeToLiveDescription": s.ttl})
	default:
		fail(w, http.StatusBadRequest, "UnknownOperationException", "")
	}
}

// name is the attribute that an expression means.
func (in *input) name(alias string) string {
	if full := in.ExpressionAttributeNames[alias]; full != "" {
		return full
	}
	return alias
}

// holds reports whether the condition of a write holds: comparisons with AND, and such terms with OR.
func (in *input) holds(present Item) bool {
	if in.ConditionExpression == "" {
		return true
	}
	return slices.ContainsFunc(strings.Split(in.ConditionExpression, " OR "), func(term string) bool {
		if strings.HasPrefix(term, "(") {
			term = strings.TrimSuffix(term[1:], ")")
		}
		return !slices.ContainsFunc(strings.Split(term, " AND "), func(c string) bool { return !in.compares(present, c) })
	})
}

// compares reports whether one comparison holds: attribute_not_exists(NAME), attribute_exists(NAME), or NAME = :VALUE.
func (in *input) compares(present Item, comparison string) bool {
	if function, name, calls := strings.Cut(strings.TrimSuffix(comparison, ")"), "("); calls {
		_, exists := present[in.name(name)]
		switch function {
		case "attribute_not_exists":
			return !exists
		case "attribute_exists":
			return exists
		}
		panic("the condition " + comparison)
	}
	left, right, ok := strings.Cut(comparison, " = ")
	if !ok {
		panic("the condition " + comparison)
	}
	have, want := present[in.name(left)], in.ExpressionAttributeValues[right]
	return have.S != nil && want.S != nil && *have.S == *want.S || have.N != nil && want.N != nil && *have.N == *want.N
}

// refuse answers a write whose condition does not hold.
func (s *Server) refuse(w http.ResponseWriter, in input, at string) {
	refusal := map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
		"message": "The conditional request failed"}
	if present, exists := s.items[at]; exists && in.ReturnValuesOnConditionCheckFailure == "ALL_OLD" {
		refusal["Item"] = present
	}
	w.WriteHeader(http.StatusBadRequest)
	answer(w, refusal)
}

// update changes attributes: SET NAME = :VALUE, …, and REMOVE NAME, …. It makes an item that is missing.
func (s *Server) update(w http.ResponseWriter, in input, at string) {
	present := s.items[at]
	if !in.holds(present) {
		s.refuse(w, in, at)
		return
	}
	next := maps.Clone(in.Key)
	maps.Copy(next, present)
	set, remove, removes := strings.Cut(strings.TrimPrefix(in.UpdateExpression, "SET "), " REMOVE ")
	for change := range strings.SplitSeq(set, ", ") {
		name, value, ok := strings.Cut(change, " = ")
		if _, known := in.ExpressionAttributeValues[value]; !ok || !known {
			panic("the update " + in.UpdateExpression)
		}
		next[in.name(name)] = in.ExpressionAttributeValues[value]
	}
	if removes {
		for name := range strings.SplitSeq(remove, ", ") {
			delete(next, in.name(name))
		}
	}
	s.items[at] = next
	answer(w, struct{}{})
}

func (s *Server) put(w http.ResponseWriter, in input, at string) {
	size := 0
	for name, a := range in.Item {
		if size += len(name); a.S != nil {
			size += len(*a.S)
		}
	}
	switch {
	case size > maxItem:
		fail(w, http.StatusBadRequest, "ValidationException", "Item size has exceeded the maximum allowed size")
	case !in.holds(s.items[at]):
		s.refuse(w, in, at)
	default:
		s.items[at] = in.Item
		answer(w, struct{}{})
	}
}

func (s *Server) batch(w http.ResponseWriter, in input) {
	found, left := map[string][]Item{}, map[string]any{}
	for name, b := range in.RequestItems {
		now := b.Keys[:min(len(b.Keys), mostOfBatch)]
		for _, key := range slices.Backward(now) { // in any order
			if i, exists := s.items[name+" "+key.key()]; exists {
				found[name] = append(found[name], i)
			}
		}
		if later := b.Keys[len(now):]; len(later) > 0 {
			left[name] = map[string]any{"Keys": later, "ConsistentRead": b.ConsistentRead}
		}
	}
	answer(w, map[string]any{"Responses": found, "UnprocessedKeys": left})
}

func (s *Server) scan(w http.ResponseWriter, in input) {
	found, last, seen := []Item{}, "", 0
	after := ""
	if in.ExclusiveStartKey != nil {
		after = in.ExclusiveStartKey.key()
	}
	for _, key := range slices.Sorted(maps.Keys(s.items)) {
		key, ours := strings.CutPrefix(key, in.TableName+" ")
		if !ours || key <= after {
			continue
		}
		if seen++; in.Limit > 0 && seen > in.Limit {
			break
		}
		if last = key; in.FilterExpression == "" || strings.HasPrefix(key, in.about()) {
			found = append(found, s.items[in.TableName+" "+key])
		}
	}
	out := map[string]any{"Items": found}
	if in.Limit > 0 && seen >= in.Limit { // DynamoDB ends so also when nothing is left
		out["LastEvaluatedKey"] = Item{"name": Text(last)}
	}
	answer(w, out)
}

func (s *Server) transact(w http.ResponseWriter, in input) {
	reasons, refused := []any{}, false
	for _, x := range in.TransactItems {
		part := x.Put
		if part == nil {
			part = x.ConditionCheck
		}
		code := "None"
		if !part.holds(s.items[part.TableName+" "+part.about()]) {
			code, refused = "ConditionalCheckFailed", true
		}
		reasons = append(reasons, map[string]any{"Code": code})
	}
	if refused {
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException", "CancellationReasons": reasons,
			"Message": "Transaction cancelled"})
		return
	}
	for _, x := range in.TransactItems {
		if x.Put != nil {
			s.items[x.Put.TableName+" "+x.Put.Item.key()] = x.Put.Item
		}
	}
	answer(w, struct{}{})
}
