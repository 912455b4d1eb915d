"""Runs each line of its input, a statement as JSON, in a transaction of its own, and prints the first column of its rows as JSON."""
import json
import os
import sys

import pg8000.dbapi

connection = pg8000.dbapi.connect(
    host=os.environ["PGHOST"], port=int(os.environ["PGPORT"]), user=os.environ["PGUSER"],
    password=os.environ["PGPASSWORD"], database=os.environ["PGDATABASE"])
for line in sys.stdin:
    cursor = connection.cursor()
    cursor.execute(json.loads(line))
    rows = cursor.fetchall() if cursor.description else []
    connection.commit()
    print(json.dumps([row[0] for row in rows]), flush=True)
