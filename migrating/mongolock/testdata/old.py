# A program that is not migrated: it takes a lock in MongoDB again and again, works for a moment,
# and writes a line for each time. It ends when its input ends.
#
#   shedlock  as ShedLock's MongoLockProvider does
#   expiry    upsert with a date, delete at the end, TTL index
#   insert    insert, delete at the end, TTL index: a document means that the lock is held
import datetime, random, sys, threading, time
import pymongo, pymongo.errors

uri, database, style, name, owner = sys.argv[1:]
db = pymongo.MongoClient(uri)[database]
locks, inside = db["old"], db["inside"]
at_most = datetime.timedelta(seconds=30)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def lock():
    t = now()
    try:
        if style == "shedlock":
            locks.find_one_and_update({"_id": name, "lockUntil": {"$lte": t}},
                                      {"$set": {"lockUntil": t + at_most, "lockedAt": t, "lockedBy": owner}}, upsert=True)
        elif style == "expiry":
            locks.find_one_and_update({"_id": name, "expiresAt": {"$lte": t}},
                                      {"$set": {"expiresAt": t + at_most, "holder": owner}}, upsert=True)
        else:
            locks.insert_one({"_id": name, "expiresAt": t + at_most, "holder": owner})
        return True
    except pymongo.errors.DuplicateKeyError:
        return False


def unlock():
    if style == "shedlock":
        locks.find_one_and_update({"_id": name}, {"$set": {"lockUntil": now()}})
    else:
        locks.delete_one({"_id": name, "holder": owner})


if style != "shedlock":
    locks.create_index("expiresAt", expireAfterSeconds=0)
while not ended.is_set():
    if lock():
        n = inside.find_one_and_update({"_id": "n"}, {"$inc": {"n": 1}}, upsert=True, return_document=True)["n"]
        time.sleep(random.uniform(0, 0.03))
        inside.update_one({"_id": "n"}, {"$inc": {"n": -1}})
        unlock()
        print("held" if n == 1 else "held together with %d others" % (n - 1), flush=True)
    time.sleep(random.uniform(0.02, 0.08))
