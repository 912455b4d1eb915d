------------------------------- MODULE Lease -------------------------------
(***************************************************************************)
(* The lease protocol of Holdfast.  README.md maps each action and each    *)
(* guard to its function in the code.                                      *)
(*                                                                         *)
(* Time is discrete and relative.  No variable holds a moment; each holds  *)
(* how long ago something was, or how long it still lasts.  So the model   *)
(* is finite without a bound on time.                                      *)
(*                                                                         *)
(* A guard is a condition that keeps a promise.  The constant Off names    *)
(* the guards that are switched off.  TLC must refute each such variant.   *)
(***************************************************************************)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Clients,    \* callers that want a lock
  Mates,      \* the callers that share one process; every other caller has its own
  OtherName,  \* the callers that want the lock "b"; the others want "a"
  DoubtTTL,   \* how long a request in doubt is cleaned up: TTL; 0: for any time, which is all that safety needs
  IDs,        \* IDs for each caller; one that nothing refers to stands for a new one
  TTL, Grace, \* in ticks
  Drift,      \* how much a caller's clock may differ from the server's in one TTL
  DriftAllowed, \* how much a waiter allows for that before it replaces a holder
  Skew,       \* how much the clocks of the backend's servers differ
  MaxMsgs,    \* bound on requests in flight
  MaxToken,   \* bound on grants of a name; 0: tokens are not counted
  Steps,      \* bound on steps back of the server's clock
  Crashes, Breaks, Pauses, Dups, \* bounds on crashes, breaks, pauses and duplicates
  Faults,     \* bound on requests and replies that are lost or too slow; 99: no bound
  Writes,     \* whether holders write to the resource that the lock protects
  Off         \* the guards that are switched off

VARIABLES
  rec,     \* the record of each name, on the server
  msgs,    \* requests in flight
  batch,   \* the batched renewal in flight
  cl,      \* the state of each caller
  clean,   \* for each ID in cleanup: how long ago a request for it was sent; else -1
  cleaned, \* the IDs for which no release is sent any more, if a guard is off
  writes,  \* writes in flight: the tokens they carry
  fence,   \* the greatest token that the resource has seen
  high,    \* the greatest token that was ever granted, for each name
  left     \* what is left of the bounds

vars == <<rec, msgs, batch, cl, clean, cleaned, writes, fence, high, left>>

G(guard) == guard \notin Off

Max(x, y) == IF x > y THEN x ELSE y
Min(x, y) == IF x < y THEN x ELSE y

Name(c)    == IF c \in OtherName THEN "b" ELSE "a"
Names      == {Name(c) : c \in Clients}
ID         == Clients \X (1..IDs)
NoID       == <<>>
Owner(id)  == id[1]
Same(c, d) == Name(c) = Name(d)
Near(c, d) == c = d \/ {c, d} \subseteq Mates

LossAt     == TTL - Grace        \* by the caller's clock, from before sending
LostBy     == LossAt + Drift     \* by the server's clock, at the latest
StuckAfter == TTL + DriftAllowed \* by the waiter's clock
Far        == 99                 \* an expiry that a step back has put out of reach

NoCall  == [k |-> "no", age |-> 0, res |-> "none", cur |-> FALSE, tok |-> 0]
NoBatch == [on |-> FALSE, ids |-> {}, todo |-> {}, missed |-> {}, live |-> FALSE]

Idle == [phase |-> "idle", id |-> NoID, age |-> 0, doubt |-> -1, seen |-> -1,
         tok |-> 0, paused |-> FALSE, call |-> NoCall]

Init ==
  /\ rec = [n \in Names |-> [kid |-> NoID, left |-> 0, token |-> 0, broken |-> FALSE]]
  /\ msgs = {} /\ batch = NoBatch
  /\ cl = [c \in Clients |-> Idle]
  /\ clean = [id \in ID |-> -1] /\ cleaned = {}
  /\ writes = {} /\ fence = 0
  /\ high = [n \in Names |-> 0]
  /\ left = [steps |-> Steps, crashes |-> Crashes, breaks |-> Breaks, pauses |-> Pauses, dups |-> Dups, faults |-> Faults]

-----------------------------------------------------------------------------
(* The rules by which a lock changes hands.  The server applies each in one  *)
(* step.  o is how far the clock of the server that judges is ahead.         *)

Unexpired(r, o) == r.kid # NoID /\ r.left > o

Grant(r, id, o) ==
  [kid |-> id, left |-> TTL + o, broken |-> FALSE,
   token |-> IF MaxToken = 0 THEN 0 ELSE IF G("TokenAboveLast") THEN r.token + 1 ELSE Max(r.token, 1)]

Extend(r, o) == [r EXCEPT !.left = Max(@, TTL + o)]

\* An outcome: the record, the answer, and whether the revision is new.
AcquireRule(r, m, o) ==
  CASE ~Unexpired(r, o)                                  -> [r |-> Grant(r, m.id, o), res |-> "ok", new |-> "grant"]
    [] r.kid = m.id /\ ~r.broken /\ G("RepeatByID")      -> [r |-> Extend(r, o), res |-> "ok", new |-> "renewal"]
    [] r.kid = m.id                                      -> [r |-> r, res |-> "held", new |-> "no"]
    [] \/ m.rep
       \/ ~G("GrantOnlyFree")                            -> [r |-> Grant(r, m.id, o), res |-> "ok", new |-> "grant"]
    [] OTHER                                             -> [r |-> r, res |-> "held", new |-> "no"]

RenewRule(r, id, o) ==
  IF r.kid = id /\ ~r.broken
  THEN [r |-> Extend(r, o), res |-> "ok", new |-> "renewal"]
  ELSE [r |-> r, res |-> "lost", new |-> "no"]

ReleaseRule(r, id) ==
  IF r.kid = id \/ ~G("ReleaseByID")
  THEN [r |-> [kid |-> NoID, left |-> 0, broken |-> FALSE, token |-> IF G("RecordKept") THEN r.token ELSE 0],
        res |-> "ok", new |-> "grant"]
  ELSE [r |-> r, res |-> "ok", new |-> "no"]

\* What a new revision of name n does: sightings and requests that refer to the old one match no longer.
\* Instead of revisions the model keeps whether one is still the record's.
NewRevision(new) == new = "grant" \/ (new = "renewal" /\ G("RevisionPerRenewal"))
StaleMsgs(ms, n) ==
  IF G("ReplaceCompares") THEN {IF Name(Owner(m.id)) = n THEN [m EXCEPT !.rep = FALSE] ELSE m : m \in ms} ELSE ms
StaleCls(f, n) ==
  [c \in Clients |-> IF Name(c) = n THEN [f[c] EXCEPT !.seen = -1, !.call.cur = FALSE] ELSE f[c]]

-----------------------------------------------------------------------------
(* The network. *)

\* Requests that can never change anything again are dropped, which keeps the model small: a late renewal or
\* release for an ID that does not hold the lock, and for which no acquire is in flight.
Acquires(ms) == {m.id : m \in {x \in ms : x.t = "acq"}}
Kept(ms, r) ==
  IF Off \cap {"ReleaseByID", "FreshID"} # {} THEN ms ELSE
  {m \in ms : m.live \/ m.t = "acq" \/ m.id \in Acquires(ms) \/ r[Name(Owner(m.id))].kid = m.id}

Msg(t, id, rep, live) == [t |-> t, id |-> id, rep |-> rep, live |-> live]

\* The call of c has ended; what it sent may still be in flight.
Late(ms, c) == {IF m.live /\ Owner(m.id) = c THEN [m EXCEPT !.live = FALSE] ELSE m : m \in ms}

CanSend == Cardinality(msgs) < MaxMsgs

\* The server applies request m.  It stays in flight if it is duplicated.
Deliver(m, o, dup) ==
  LET c   == Owner(m.id)
      n   == Name(c)
      out == CASE m.t = "acq" -> AcquireRule(rec[n], m, o)
               [] m.t = "renew"           -> RenewRule(rec[n], m.id, o)
               [] m.t = "rel"             -> ReleaseRule(rec[n], m.id)
      rest  == (msgs \ {m}) \cup (IF dup THEN {[m EXCEPT !.live = FALSE]} ELSE {})
  IN \E stale \in IF G("RevisionNeverRepeats") \/ left.steps = Steps \/ out.new # "renewal"
                  THEN {NewRevision(out.new)} ELSE {TRUE, FALSE},
        res \in IF m.t = "renew" /\ ~G("DefiniteLoss") THEN {out.res, "lost"} ELSE {out.res} :
     LET cls == IF stale THEN StaleCls(cl, n) ELSE cl
         ms  == IF stale THEN StaleMsgs(rest, n) ELSE rest
     IN /\ dup => left.dups > 0
        /\ out.new = "grant" /\ out.res = "ok" /\ out.r.kid # NoID => (MaxToken = 0 \/ rec[n].token < MaxToken)
        /\ rec' = [rec EXCEPT ![n] = out.r]
        /\ msgs' = Kept(ms, rec')
        /\ high' = [high EXCEPT ![n] = IF out.r.kid # NoID THEN Max(@, out.r.token) ELSE @]
        /\ cl' = IF m.live
                 THEN [cls EXCEPT ![c].call.res = res, ![c].call.tok = IF Writes /\ res = "ok" THEN out.r.token ELSE 0,
                                  ![c].call.cur = (res = "held")]
                 ELSE cls
        /\ left' = IF dup THEN [left EXCEPT !.dups = @ - 1] ELSE left
        /\ UNCHANGED <<batch, clean, cleaned, writes, fence>>

Fault == left.faults # 0 /\ left' = [left EXCEPT !.faults = IF @ = 99 THEN @ ELSE @ - 1]

Lose(m) ==
  /\ m \in msgs /\ Fault
  /\ msgs' = Kept(msgs \ {m}, rec)
  /\ UNCHANGED <<rec, batch, cl, clean, cleaned, writes, fence, high>>

\* The caller no longer waits for the reply of its call.
TimeOut(c) ==
  IF cl[c].call.res = "none" /\ ~\E m \in msgs : m.live /\ Owner(m.id) = c
  THEN UNCHANGED left ELSE Fault

-----------------------------------------------------------------------------
(* Acquire. *)

Referenced(id) ==
  \/ clean[id] >= 0
  \/ \E m \in msgs : m.id = id
  \/ \E n \in Names : rec[n].kid = id
  \/ \E c \in Clients : cl[c].id = id
  \/ id \in batch.ids

\* A caller begins to want the lock, with a new ID.
Start(c) ==
  /\ cl[c].phase = "idle" /\ ~cl[c].paused
  /\ \A d \in Clients \ {c} : Near(c, d) /\ Same(c, d) => cl[d].phase # "want"
  /\ \E k \in 1..IDs :
       /\ \/ ~Referenced(<<c, k>>)
          \/ ~G("FreshID") /\ clean[<<c, k>>] >= 0
       /\ \A j \in 1..(k-1) : Referenced(<<c, j>>)  \* equal to any other new one
       /\ cl' = [cl EXCEPT ![c].phase = "want", ![c].id = <<c, k>>]
  /\ UNCHANGED <<rec, msgs, batch, clean, cleaned, writes, fence, high, left>>

\* The waiter's turn: its own process does not hold the lock.
Turn(c) == \A d \in Clients \ {c} : Near(c, d) /\ Same(c, d) => cl[d].phase # "work"

\* The holder that was seen is over by the waiter's clock, which may be off by the drift.
Stuck(c) ==
  IF cl[c].seen < 0 \/ ~G("Replace") THEN {FALSE}
  ELSE IF ~G("WholeTTL") THEN {TRUE}
  ELSE IF cl[c].seen >= StuckAfter + Drift THEN {TRUE}
  ELSE IF cl[c].seen >= StuckAfter - Drift THEN {TRUE, FALSE} ELSE {FALSE}

SendAcquire(c) ==
  /\ cl[c].phase = "want" /\ cl[c].call = NoCall /\ Turn(c) /\ CanSend
  /\ \E rep \in Stuck(c) :
       msgs' = msgs \cup {Msg("acq", cl[c].id, rep, TRUE)}
  /\ cl' = [cl EXCEPT ![c].call = [NoCall EXCEPT !.k = "acq"]]
  /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high, left>>

\* A request for an ID is in doubt when its holder gives it up: its cleanup begins.
Abandon(id, doubt) ==
  IF doubt < 0 THEN UNCHANGED <<clean, cleaned>>
  ELSE /\ clean' = [clean EXCEPT ![id] = doubt]
       /\ cleaned' = IF G("CleanUp") THEN cleaned ELSE cleaned \cup {id}

\* The hold of c is over.  A duplicate of its acquire may still land: a cleanup begins if one is in doubt.
CleanUpAfterHold(c) ==
  LET doubt == cl[c].doubt
  IN \/ /\ doubt < 0 \/ doubt = DoubtTTL
        /\ UNCHANGED <<clean, cleaned>>
     \/ /\ doubt >= 0 /\ (doubt < DoubtTTL \/ DoubtTTL = 0)
        /\ clean' = [clean EXCEPT ![cl[c].id] = doubt]
        /\ cleaned' = IF G("CleanUpAfterHold") THEN cleaned ELSE cleaned \cup {cl[c].id}

\* The lease is granted.  Its time counts from before the request was sent.
TakeGrant(c) ==
  LET call  == cl[c].call
      count == IF G("CountFromSend") THEN call.age ELSE 0
  IN /\ cl[c].phase = "want" /\ call.k = "acq" /\ call.res = "ok" /\ ~cl[c].paused
     /\ \/ /\ count < LostBy \/ ~G("LateReply")
           /\ cl' = [cl EXCEPT ![c] = [@ EXCEPT !.phase = "work", !.age = count, !.tok = call.tok, !.seen = -1, !.call = NoCall]]
           /\ UNCHANGED <<clean, cleaned>>
        \/ /\ count >= LostBy /\ G("LateReply")
           /\ cl' = [cl EXCEPT ![c] = [Idle EXCEPT !.seen = cl[c].seen]]
           /\ Abandon(cl[c].id, Min(call.age, DoubtTTL))
     /\ msgs' = Late(msgs, c)
     /\ UNCHANGED <<rec, batch, writes, fence, high, left>>

\* The request is refused.  The waiter notes since when it has seen this revision.
TakeRefusal(c) ==
  LET call == cl[c].call
      since == IF G("SeenFromReply") THEN 0 ELSE call.age
  IN /\ cl[c].phase = "want" /\ call.k = "acq" /\ call.res = "held" /\ ~cl[c].paused
     /\ cl' = [cl EXCEPT ![c].call = NoCall,
                         ![c].seen = IF ~call.cur \/ ~G("Replace") THEN -1 ELSE IF @ < 0 THEN since ELSE @]
     /\ msgs' = Late(msgs, c)
     /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high, left>>

\* No answer in time: the request is in doubt.
AcquireFails(c) ==
  /\ cl[c].phase = "want" /\ cl[c].call.k = "acq" /\ ~cl[c].paused
  /\ cl' = [cl EXCEPT ![c].call = NoCall, ![c].doubt = Min(cl[c].call.age, DoubtTTL)]
  /\ msgs' = Kept(Late(msgs, c), rec)
  /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high>>
  /\ TimeOut(c)

StopWaiting(c) ==
  /\ cl[c].phase = "want" /\ cl[c].call = NoCall /\ ~cl[c].paused
  /\ cl' = [cl EXCEPT ![c] = [Idle EXCEPT !.seen = cl[c].seen]]
  /\ Abandon(cl[c].id, cl[c].doubt)
  /\ UNCHANGED <<rec, msgs, batch, writes, fence, high, left>>

-----------------------------------------------------------------------------
(* Hold and renew. *)

SendRenewal(c) ==
  /\ cl[c].phase = "work" /\ cl[c].call = NoCall /\ CanSend /\ ~cl[c].paused
  /\ msgs' = msgs \cup {Msg("renew", cl[c].id, FALSE, TRUE)}
  /\ cl' = [cl EXCEPT ![c].call = [NoCall EXCEPT !.k = "renew"]]
  /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high, left>>

\* The reply of a renewal, single or in a batch.
TakeRenewal(c) ==
  LET call  == cl[c].call
      count == IF G("CountFromSend") THEN call.age ELSE 0
  IN /\ cl[c].phase = "work" /\ call.k \in {"renew", "batch"} /\ call.res # "none" /\ ~cl[c].paused
     /\ cl' = [cl EXCEPT ![c].call = NoCall,
                         ![c].age = IF call.res = "ok" THEN Min(@, count) ELSE @,
                         ![c].phase = IF call.res = "lost" THEN "lost" ELSE @]
     /\ msgs' = Kept(Late(msgs, c), rec)
     /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high, left>>

\* A renewal failed, with an unknown outcome.  It is tried again.
RenewalFails(c) ==
  /\ cl[c].phase = "work" /\ cl[c].call.k = "renew" /\ ~cl[c].paused
  /\ cl' = [cl EXCEPT ![c].call = NoCall, ![c].phase = IF G("TransientIsRetried") THEN @ ELSE "lost"]
  /\ msgs' = Kept(Late(msgs, c), rec)
  /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high>>
  /\ TimeOut(c)

\* One call renews the leases of all Mates that hold one.
SendBatch ==
  LET who == {c \in Mates : cl[c].phase = "work" /\ cl[c].call = NoCall /\ ~cl[c].paused}
      ids == {cl[c].id : c \in who}
  IN /\ OtherName # {} /\ ~batch.on /\ Cardinality(who) > 1
     /\ batch' = [on |-> TRUE, ids |-> ids, todo |-> ids, missed |-> {}, live |-> TRUE]
     /\ cl' = [c \in Clients |-> IF c \in who THEN [cl[c] EXCEPT !.call = [NoCall EXCEPT !.k = "batch"]] ELSE cl[c]]
     /\ UNCHANGED <<rec, msgs, clean, cleaned, writes, fence, high, left>>

\* The server applies a part of the batch.
ApplyBatch(id, o) ==
  LET n   == Name(Owner(id))
      out == RenewRule(rec[n], id, o)
  IN /\ batch.on /\ id \in batch.todo
     /\ rec' = [rec EXCEPT ![n] = out.r]
     /\ batch' = [batch EXCEPT !.todo = @ \ {id}, !.missed = IF out.res = "ok" THEN @ ELSE @ \cup {id}]
     /\ cl' = IF NewRevision(out.new) THEN StaleCls(cl, n) ELSE cl
     /\ msgs' = IF NewRevision(out.new) THEN StaleMsgs(msgs, n) ELSE msgs
     /\ UNCHANGED <<clean, cleaned, writes, fence, high, left>>

\* All of it is applied.  If it matched fewer leases than it has, each that seems lost is renewed by
\* itself, for a definite answer.
BatchReply ==
  LET Answer(id) == IF batch.missed = {} THEN "ok"
                    ELSE IF ~G("BatchMissIsChecked") THEN "ok"
                    ELSE IF ~G("BatchLossIsDefinite") THEN "lost"
                    ELSE IF id \in batch.missed THEN "lost" ELSE "ok"
  IN /\ batch.on /\ batch.todo = {}
     /\ cl' = [c \in Clients |-> IF batch.live /\ cl[c].id \in batch.ids /\ cl[c].call.k = "batch"
                                 THEN [cl[c] EXCEPT !.call.res = Answer(cl[c].id)] ELSE cl[c]]
     /\ batch' = NoBatch
     /\ UNCHANGED <<rec, msgs, clean, cleaned, writes, fence, high, left>>

\* The call fails for all its leases.  What is left of it may still be applied, or be lost.
BatchFails ==
  /\ batch.live
  /\ batch' \in {[batch EXCEPT !.live = FALSE], NoBatch}
  /\ cl' = [c \in Clients |-> IF cl[c].id \in batch.ids /\ cl[c].call.k = "batch"
                              THEN [cl[c] EXCEPT !.call = NoCall] ELSE cl[c]]
  /\ UNCHANGED <<rec, msgs, clean, cleaned, writes, fence, high, left>>

LoseBatch ==
  /\ batch.on /\ ~batch.live /\ batch' = NoBatch
  /\ UNCHANGED <<rec, msgs, cl, clean, cleaned, writes, fence, high, left>>

-----------------------------------------------------------------------------
(* Release.               *)

\* The work has returned: the hold's context ends, the renewal stops.
Finish(c) ==
  /\ cl[c].phase \in {"work", "lost"} /\ ~cl[c].paused
  /\ cl' = [cl EXCEPT ![c].phase = "done", ![c].call = NoCall, ![c].age = 0, ![c].tok = 0]
  /\ msgs' = Kept(Late(msgs, c), rec)
  /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high, left>>

SendRelease(c) ==
  /\ \/ cl[c].phase = "done" /\ cl[c].call = NoCall
     \/ cl[c].phase = "work" /\ cl[c].call = NoCall /\ ~G("ReleaseAfterWork")
  /\ ~cl[c].paused /\ CanSend
  /\ msgs' = msgs \cup {Msg("rel", cl[c].id, FALSE, TRUE)}
  /\ cl' = [cl EXCEPT ![c].call = [NoCall EXCEPT !.k = "rel"]]
  /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high, left>>

\* The release is over.
TakeRelease(c) ==
  /\ cl[c].phase = "done" /\ cl[c].call.k = "rel" /\ cl[c].call.res = "ok"
  /\ cl' = [cl EXCEPT ![c] = [Idle EXCEPT !.seen = cl[c].seen]]
  /\ msgs' = Kept(Late(msgs, c), rec)
  /\ CleanUpAfterHold(c)
  /\ UNCHANGED <<rec, batch, writes, fence, high, left>>

\* No answer: the release is tried again, or left to the cleanup.
ReleaseFails(c) ==
  /\ cl[c].phase = "done" /\ cl[c].call.k = "rel"
  /\ \/ cl' = [cl EXCEPT ![c].call = NoCall] /\ UNCHANGED <<clean, cleaned>>
     \/ /\ cl' = [cl EXCEPT ![c] = [Idle EXCEPT !.seen = cl[c].seen]]
        /\ Abandon(cl[c].id, 0)
  /\ msgs' = Kept(Late(msgs, c), rec)
  /\ UNCHANGED <<rec, batch, writes, fence, high>>
  /\ TimeOut(c)

\* The cleanup of an ID sends a release, again and again until one TTL after the last request was sent.
CleanUp(id) ==
  /\ clean[id] >= 0 /\ id \notin cleaned /\ CanSend
  /\ msgs' = Kept(msgs \cup {Msg("rel", id, FALSE, FALSE)}, rec)
  /\ cleaned' = IF G("CleanUpRepeats") THEN cleaned ELSE cleaned \cup {id}
  /\ UNCHANGED <<rec, batch, cl, clean, writes, fence, high, left>>

EndCleanUp(id) ==
  /\ clean[id] = DoubtTTL
  /\ clean' = [clean EXCEPT ![id] = -1]
  /\ cleaned' = cleaned \ {id}
  /\ UNCHANGED <<rec, msgs, batch, cl, writes, fence, high, left>>

-----------------------------------------------------------------------------
(* Time, and what else happens. *)

Tick ==
  LET Up(x, most) == IF x < 0 THEN x ELSE Min(x + 1, most)
      Grown(s) == [s EXCEPT !.age = IF s.phase = "work" THEN Up(@, TTL + Drift) ELSE @,
                            !.doubt = Up(@, DoubtTTL),
                            !.seen = Up(@, StuckAfter + Drift),
                            !.call.age = IF s.call.k \in {"acq", "renew", "batch"} THEN Up(@, TTL + Drift) ELSE @]
      \* The deadline passes.  A late reply is of no use any more.
      Passed(s) == IF s.phase = "work" /\ ~s.paused /\ s.age >= LostBy /\ G("LocalDeadline")
                   THEN [s EXCEPT !.phase = "lost", !.call = NoCall] ELSE s
      lost == {c \in Clients : Passed(Grown(cl[c])).phase # cl[c].phase}
      slow == \E c \in Clients : cl[c].call.k = "acq" /\ cl[c].call.age + 1 = LostBy
  IN /\ rec' = [n \in Names |-> [rec[n] EXCEPT !.left = IF @ = Far THEN Far ELSE Max(@ - 1, 0)]]
     /\ cl' = [c \in Clients |-> Passed(Grown(cl[c]))]
     /\ clean' = [id \in ID |-> Up(clean[id], DoubtTTL)]
     /\ msgs' = Kept({IF m.live /\ Owner(m.id) \in lost THEN [m EXCEPT !.live = FALSE] ELSE m : m \in msgs}, rec)
     /\ IF slow /\ left.faults # 99 THEN Fault ELSE UNCHANGED left
     /\ UNCHANGED <<batch, cleaned, writes, fence, high>>

\* The server's clock steps back, far: every expiry is out of reach, also one that had passed.
StepBack ==
  /\ left.steps > 0
  /\ left' = [left EXCEPT !.steps = @ - 1]
  /\ rec' = [n \in Names |-> IF rec[n].kid = NoID THEN rec[n] ELSE [rec[n] EXCEPT !.left = Far]]
  /\ UNCHANGED <<msgs, batch, cl, clean, cleaned, writes, fence, high>>

\* A process ends and forgets everything.  Its requests stay in flight.
Crash(c) ==
  /\ left.crashes > 0 /\ cl[c] # Idle
  /\ left' = [left EXCEPT !.crashes = @ - 1]
  /\ cl' = [d \in Clients |-> IF Near(c, d) THEN Idle ELSE cl[d]]
  /\ clean' = [id \in ID |-> IF Near(c, Owner(id)) THEN -1 ELSE clean[id]]
  /\ cleaned' = {id \in cleaned : ~Near(c, Owner(id))}
  /\ msgs' = Kept({IF m.live /\ Near(c, Owner(m.id)) THEN [m EXCEPT !.live = FALSE] ELSE m : m \in msgs}, rec)
  /\ batch' = IF c \in Mates THEN [batch EXCEPT !.live = FALSE] ELSE batch
  /\ UNCHANGED <<rec, writes, fence, high>>

\* An operator breaks a lock: renewals are refused, the lease runs out.
Break(n) ==
  /\ left.breaks > 0 /\ rec[n].kid # NoID /\ ~rec[n].broken
  /\ left' = [left EXCEPT !.breaks = @ - 1]
  /\ rec' = [rec EXCEPT ![n] = IF G("BreakKeepsLease") THEN [@ EXCEPT !.broken = TRUE]
                               ELSE [@ EXCEPT !.kid = NoID, !.left = 0]]
  /\ UNCHANGED <<msgs, batch, cl, clean, cleaned, writes, fence, high>>

\* A process is paused: it notices nothing while time passes.
Pause(c) ==
  /\ left.pauses > 0 /\ ~cl[c].paused /\ cl[c].phase = "work"
  /\ left' = [left EXCEPT !.pauses = @ - 1]
  /\ cl' = [cl EXCEPT ![c].paused = TRUE]
  /\ UNCHANGED <<rec, msgs, batch, clean, cleaned, writes, fence, high>>

Resume(c) ==
  /\ cl[c].paused
  /\ cl' = [cl EXCEPT ![c].paused = FALSE,
                      ![c].phase = IF cl[c].age >= LostBy THEN "lost" ELSE @,
                      ![c].call = IF cl[c].age >= LostBy THEN NoCall ELSE @]
  /\ msgs' = IF cl[c].age >= LostBy THEN Kept(Late(msgs, c), rec) ELSE msgs
  /\ UNCHANGED <<rec, batch, clean, cleaned, writes, fence, high, left>>

\* The holder writes to the resource, with its token.  A paused process may do so before it notices.
SendWrite(c) ==
  /\ Writes /\ cl[c].phase = "work" /\ cl[c].tok \notin writes
  /\ writes' = writes \cup {cl[c].tok}
  /\ UNCHANGED <<rec, msgs, batch, cl, clean, cleaned, fence, high, left>>

\* The resource applies a write, unless it has seen a greater token.
ApplyWrite(t) ==
  /\ t \in writes
  /\ writes' = writes \ {t}
  /\ fence' = IF t >= fence \/ ~G("Fence") THEN t ELSE fence
  /\ UNCHANGED <<rec, msgs, batch, cl, clean, cleaned, high, left>>

-----------------------------------------------------------------------------

DeliverAny(ms) == \E m \in ms, o \in 0..Skew, dup \in {FALSE, left.dups > 0} : Deliver(m, o, dup)

LoseAny       == \E m \in msgs : Lose(m)
ApplyBatchAny == \E id \in batch.todo, o \in 0..Skew : ApplyBatch(id, o)
ApplyWriteAny == \E t \in writes : ApplyWrite(t)

Client(c) ==
  \/ Start(c) \/ SendAcquire(c) \/ TakeGrant(c) \/ TakeRefusal(c) \/ AcquireFails(c) \/ StopWaiting(c)
  \/ SendRenewal(c) \/ TakeRenewal(c) \/ RenewalFails(c)
  \/ Finish(c) \/ SendRelease(c) \/ TakeRelease(c) \/ ReleaseFails(c)
  \/ SendWrite(c)

Next ==
  \/ \E c \in Clients : Client(c) \/ Crash(c) \/ Pause(c) \/ Resume(c)
  \/ DeliverAny(msgs) \/ LoseAny
  \/ SendBatch \/ BatchReply \/ BatchFails \/ LoseBatch \/ ApplyBatchAny
  \/ \E id \in ID : CleanUp(id) \/ EndCleanUp(id)
  \/ Tick \/ StepBack
  \/ \E n \in Names : Break(n)
  \/ ApplyWriteAny

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* The promises: what must always hold. *)

TypeOK ==
  /\ \A n \in Names : /\ rec[n].kid \in ID \cup {NoID}
                      /\ rec[n].left \in 0..(TTL + Skew) \cup {Far}
                      /\ rec[n].token \in 0..MaxToken
  /\ \A c \in Clients : /\ cl[c].phase \in {"idle", "want", "work", "lost", "done"}
                        /\ cl[c].phase = "idle" <=> cl[c].id = NoID
                        /\ cl[c].age \in 0..(TTL + Drift) /\ cl[c].doubt \in -1..DoubtTTL
                        /\ cl[c].seen \in -1..(StuckAfter + Drift)
  /\ \A id \in ID : clean[id] \in -1..DoubtTTL
  /\ \A m \in msgs : m.live => cl[Owner(m.id)].call.k = m.t /\ cl[Owner(m.id)].id = m.id
  /\ Cardinality(msgs) <= MaxMsgs + Dups

\* The hold's context is live: work runs, and its lease counts as held.
Live(c) == cl[c].phase = "work" /\ ~cl[c].paused

\* Promise 1: at most one holder's context is live, while no process is paused.
Exclusion == \A c, d \in Clients : c # d /\ Same(c, d) => ~(Live(c) /\ Live(d))

\* No guard keeps this if processes may be paused: the checker must refute it.
ExclusionDespitePauses ==
  \A c, d \in Clients : c # d /\ Same(c, d) => ~(cl[c].phase = "work" /\ cl[d].phase = "work")

\* Promise 2: while a context is live, the backend grants the lock to no other.
EarlyLoss == \A c \in Clients : Live(c) =>
  /\ rec[Name(c)].kid = cl[c].id
  /\ rec[Name(c)].left > Skew

\* Promise 7: no release is sent while the work runs.
ReleaseAfterWork == \A m \in msgs : m.t = "rel" => ~(cl[Owner(m.id)].id = m.id /\ cl[Owner(m.id)].phase = "work")

\* Promise 5: an ID in cleanup is never used again.
CleanIDsAreUnused == \A c \in Clients : cl[c].id # NoID => clean[cl[c].id] < 0

\* Promise 3: every grant to another ID has a token greater than every earlier one.
TokensRise == [][\A n \in Names :
  rec'[n].kid # rec[n].kid /\ rec'[n].kid # NoID => MaxToken = 0 \/ rec'[n].token > high[n]]_vars

\* Promise 3: the resource never takes a write of an earlier holder after that of a later one.
WritesInOrder == [][fence' >= fence]_vars

\* Promise 4: a hold ends as lost only by the deadline, or because the lease is certainly not its own any more.
TransientIsNoLoss == [][\A c \in Clients :
  cl[c].phase = "work" /\ cl'[c].phase = "lost" =>
    \/ cl'[c].age >= LossAt
    \/ rec[Name(c)].kid # cl[c].id \/ rec[Name(c)].broken]_vars

\* Promise 6: a lock becomes free only by a release with the ID that holds it.
OnlyHolderReleases == [][\A n \in Names :
  rec[n].kid # NoID /\ rec'[n].kid = NoID => \E m \in msgs : m.t = "rel" /\ m.id = rec[n].kid]_vars

-----------------------------------------------------------------------------
(* The promises: what must happen. *)

\* Callers go on, and what is sent arrives, but for a bounded number of faults.
Works ==
  /\ \A c \in Clients :
       /\ SF_vars(SendAcquire(c)) /\ WF_vars(TakeGrant(c)) /\ WF_vars(TakeRefusal(c)) /\ WF_vars(AcquireFails(c))
       /\ WF_vars(SendRelease(c)) /\ WF_vars(TakeRelease(c)) /\ WF_vars(ReleaseFails(c))
  /\ \A id \in ID :
       /\ SF_vars(CleanUp(id))
       /\ WF_vars(DeliverAny({m \in msgs : m.t # "rel" /\ m.id = id}))
       /\ WF_vars(DeliverAny({m \in msgs : m.t = "rel" /\ m.id = id}))

\* Time passes.
Passes == SF_vars(Tick) /\ \A id \in ID : WF_vars(EndCleanUp(id))

FairSpec    == Spec /\ Works /\ Passes
InstantSpec == Spec /\ Works  \* time may stand still: what must happen does not wait for an expiry

\* Promise 10: no lock is stuck.  If callers wait, one of them holds the lock at last, or they all stop waiting.
NoLockIsStuck == \A n \in Names :
  (\E c \in Clients : Name(c) = n /\ cl[c].phase = "want")
  ~> (\/ \E c \in Clients : Name(c) = n /\ cl[c].phase = "work"
      \/ \A c \in Clients : Name(c) = n => cl[c].phase # "want")

\* Promise 5: a lease in doubt is freed without waiting for its expiry.
DoubtIsCleaned == \A id \in ID :
  (clean[id] >= 0 /\ clean[id] < DoubtTTL /\ rec[Name(Owner(id))].kid = id)
  ~> (clean[id] < 0 \/ clean[id] = DoubtTTL \/ rec[Name(Owner(id))].kid # id)

\* Promise 5: a waiter whose own request was granted, unknown to it, gets the lock without waiting for the expiry.
OwnGrantIsTaken == \A c \in Clients :
  (cl[c].phase = "want" /\ rec[Name(c)].kid = cl[c].id /\ ~rec[Name(c)].broken)
  ~> (cl[c].phase # "want" \/ rec[Name(c)].kid # cl[c].id)

Symmetry == Permutations(Clients)
=============================================================================
