------------------------------- MODULE Queue --------------------------------
(***************************************************************************)
(* The queue of the waiters of one lock, and the hints that wake them.     *)
(* Lease.tla has the leases themselves; here a holder just holds.          *)
(*                                                                         *)
(* A hint promises nothing: it is lost, doubled, late, or comes before the *)
(* reply that says that its waiter is in the queue.  The queue's rules and *)
(* the poll must make that good.                                           *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Waiters,   \* processes that want the lock
  MaxTurn,   \* in ticks: how long a free lock is reserved at most; a turn is one tick
  Woken,     \* how many waiters a release wakes
  Starts, Deaths, Leaves, Lost, Dups, \* bounds on waits, crashes, waiters that give up, lost messages, doubled hints
  Prompt,    \* whether processes and messages are quicker than a turn, and than the end of a lease
  Off        \* the guards that are switched off

VARIABLES
  holder,  \* who holds the lock, on the server, or None
  queue,   \* the waiters in the order of their positions
  free,    \* how long the lock has been free, up to MaxTurn
  hints,   \* hints on their way
  st,      \* what each process does
  plan,    \* the processes that will ask, because something woke them
  saw,     \* the processes that a refusal has told when the holder's lease ends
  left     \* what is left of the bounds

vars == <<holder, queue, free, hints, st, plan, saw, left>>

None == "none"
G(guard) == guard \notin Off

Min(x, y) == IF x < y THEN x ELSE y

Position(w) ==
  IF \E i \in 1..Len(queue) : queue[i] = w THEN CHOOSE i \in 1..Len(queue) : queue[i] = w ELSE Len(queue) + 1
Turn(w)     == IF G("QueueTurnsEnd") THEN Min(Position(w) - 1, MaxTurn) ELSE IF Position(w) = 1 THEN 0 ELSE MaxTurn + 1
Reserved(w) == IF G("QueueInTurn") THEN free < Turn(w) ELSE FALSE
Without(q, gone) == SelectSeq(q, LAMBDA x : x \notin gone)
First(q, n) == {q[i] : i \in 1..Min(n, Len(q))}

Waiting == {"asleep", "asking", "refused", "early"}   \* refused: by a holder; early: before its turn
Live(w)  == st[w] # "dead"
Wants(w) == st[w] \in Waiting \cup {"granted"}

\* Something is on its way, or a waiter is about to ask.  If all are prompt, no turn ends meanwhile.
TooEarly(w) == holder = None /\ Reserved(w)
Busy ==
  \/ hints # {}
  \/ \E w \in Waiters : st[w] \in {"asking", "refused", "early", "granted"} \/ (st[w] = "asleep" /\ w \in plan /\ ~TooEarly(w))

Init ==
  /\ holder = None /\ queue = <<>> /\ free = MaxTurn /\ hints = {}
  /\ st = [w \in Waiters |-> "idle"]
  /\ plan = {} /\ saw = {}
  /\ left = [starts |-> Starts, deaths |-> Deaths, leaves |-> Leaves, lost |-> Lost, dups |-> Dups]

\* A process begins to want the lock.  Its first request is on its way.
Start(w) ==
  /\ st[w] = "idle" /\ left.starts > 0
  /\ st' = [st EXCEPT ![w] = "asking"]
  /\ left' = [left EXCEPT !.starts = @ - 1]
  /\ UNCHANGED <<holder, queue, free, hints, plan, saw>>

\* The server decides a request.  A refused waiter enters the queue, or keeps its position.
Decide(w) ==
  /\ st[w] = "asking"
  /\ IF holder = None /\ ~Reserved(w)
     THEN /\ holder' = w
          /\ st' = [st EXCEPT ![w] = "granted"]
          \* Those ahead that were woken and did not come lose their positions.
          /\ queue' = Without(queue, {w} \cup First(SubSeq(queue, 1, Position(w) - 1), Woken))
          /\ free' = 0
     ELSE /\ st' = [st EXCEPT ![w] = IF holder = None THEN "early" ELSE "refused"]
          /\ queue' = IF \E i \in 1..Len(queue) : queue[i] = w THEN queue ELSE Append(queue, w)
          /\ UNCHANGED <<holder, free>>
  /\ UNCHANGED <<hints, plan, saw, left>>

\* The reply.  A refusal because of a reservation plans a request at the waiter's turn.  So does a hint that came
\* before the refusal.
TakeReply(w) ==
  /\ \/ /\ st[w] = "granted" /\ st' = [st EXCEPT ![w] = "hold"]
        /\ plan' = plan \ {w} /\ saw' = saw \ {w}
     \/ /\ st[w] = "refused" /\ st' = [st EXCEPT ![w] = "asleep"]
        /\ saw' = saw \cup {w}
        /\ UNCHANGED plan
     \/ /\ st[w] = "early" /\ st' = [st EXCEPT ![w] = "asleep"]
        /\ plan' = IF G("QueueAskAtTurn") THEN plan \cup {w} ELSE plan
        /\ UNCHANGED saw
  /\ UNCHANGED <<holder, queue, free, hints, left>>

\* A request or its reply is lost: the waiter asks again.
LoseReply(w) ==
  /\ st[w] \in {"asking", "refused", "early"} /\ left.lost > 0
  /\ st' = [st EXCEPT ![w] = "asleep"]
  /\ plan' = plan \cup {w}
  /\ left' = [left EXCEPT !.lost = @ - 1]
  /\ UNCHANGED <<holder, queue, free, hints, saw>>

\* What was planned is done.  A waiter that is woken too early is refused, and plans again.
Ask(w) ==
  /\ st[w] = "asleep" /\ w \in plan /\ (Prompt => ~TooEarly(w))
  /\ st' = [st EXCEPT ![w] = "asking"]
  /\ plan' = plan \ {w}
  /\ UNCHANGED <<holder, queue, free, hints, saw, left>>

\* The safety net.
Poll(w) ==
  /\ st[w] = "asleep" /\ G("QueuePoll")
  /\ st' = [st EXCEPT ![w] = "asking"]
  /\ UNCHANGED <<holder, queue, free, hints, plan, saw, left>>

Release(w) ==
  /\ st[w] = "hold"
  /\ holder' = None /\ free' = 0
  /\ hints' = hints \cup First(queue, Woken)
  /\ st' = [st EXCEPT ![w] = "idle"]
  /\ UNCHANGED <<queue, plan, saw, left>>

\* The lease of a dead holder ends.  Nobody sends a hint; the waiters know when it ends.
Expire ==
  /\ holder # None /\ ~Live(holder) /\ (Prompt => ~Busy)
  /\ holder' = None /\ free' = 0
  /\ plan' = IF G("QueueAskAtExpiry") THEN plan \cup {w \in saw : st[w] \in Waiting} ELSE plan
  /\ UNCHANGED <<queue, hints, st, saw, left>>

\* A hint arrives.  It may be for a waiter whose request is still under way.
Hint(w) ==
  /\ w \in hints
  /\ \/ hints' = hints \ {w} /\ UNCHANGED left
     \/ left.dups > 0 /\ hints' = hints /\ left' = [left EXCEPT !.dups = @ - 1]
  /\ plan' = IF ~Wants(w) \/ (st[w] # "asleep" /\ ~G("QueueEarlyHint")) \/ (~G("QueueTurnAsks") /\ holder = None /\ free = 0)
             THEN plan ELSE plan \cup {w}
  /\ UNCHANGED <<holder, queue, free, st, saw>>

LoseHint(w) ==
  /\ w \in hints /\ left.lost > 0
  /\ hints' = hints \ {w}
  /\ left' = [left EXCEPT !.lost = @ - 1]
  /\ UNCHANGED <<holder, queue, free, st, plan, saw>>

\* A waiter gives up, and leaves the queue.
Leave(w) ==
  /\ st[w] = "asleep" /\ left.leaves > 0
  /\ st' = [st EXCEPT ![w] = "idle"]
  /\ queue' = Without(queue, {w})
  /\ plan' = plan \ {w} /\ saw' = saw \ {w}
  /\ left' = [left EXCEPT !.leaves = @ - 1]
  /\ UNCHANGED <<holder, free, hints>>

\* A process dies.  Its position and its requests stay.
Die(w) ==
  /\ Live(w) /\ st[w] # "idle" /\ left.deaths > 0
  /\ st' = [st EXCEPT ![w] = "dead"]
  /\ plan' = plan \ {w} /\ saw' = saw \ {w}
  /\ left' = [left EXCEPT !.deaths = @ - 1]
  /\ UNCHANGED <<holder, queue, free, hints>>

Tick ==
  /\ holder = None /\ free < MaxTurn /\ (Prompt => ~Busy)
  /\ free' = free + 1
  /\ UNCHANGED <<holder, queue, hints, st, plan, saw, left>>

Next ==
  \/ \E w \in Waiters :
       \/ Start(w) \/ Decide(w) \/ TakeReply(w) \/ LoseReply(w) \/ Ask(w) \/ Poll(w) \/ Release(w)
       \/ Hint(w) \/ LoseHint(w) \/ Leave(w) \/ Die(w)
  \/ Expire \/ Tick

\* Processes go on, time passes, and what is sent arrives unless it is lost.  Nobody need want the lock, and a poll is
\* rare, but comes.
Fair ==
  /\ \A w \in Waiters :
       /\ WF_vars(Decide(w)) /\ WF_vars(TakeReply(w)) /\ WF_vars(Ask(w)) /\ WF_vars(Release(w)) /\ WF_vars(Hint(w))
       /\ WF_vars(Poll(w))
  /\ WF_vars(Expire) /\ WF_vars(Tick)

Spec == Init /\ [][Next]_vars /\ Fair

-----------------------------------------------------------------------------

TypeOK ==
  /\ holder \in Waiters \cup {None}
  /\ free \in 0..MaxTurn
  /\ Len(queue) <= Cardinality(Waiters)
  /\ \A i, j \in 1..Len(queue) : i # j => queue[i] # queue[j]
  /\ hints \subseteq Waiters /\ plan \subseteq Waiters /\ saw \subseteq Waiters
  /\ \A w \in Waiters : st[w] \in {"idle", "hold", "dead", "granted"} \cup Waiting

\* Promise 1: a process that holds the lock, or is about to, is the server's holder.
OneHolder == \A w \in Waiters : st[w] \in {"granted", "hold"} => holder = w

\* Nobody is passed before its turn is over: whoever is granted the lock has let those before it have theirs.
InOrder == [][\A w \in Waiters :
  holder = None /\ holder' = w => free >= Min(Position(w) - 1, MaxTurn)]_vars

\* Promise 10: a free lock that a living process wants is granted, or nobody wants it any more.
FreeIsGranted ==
  (holder = None /\ \E w \in Waiters : Live(w) /\ Wants(w)) ~> (holder # None \/ \A w \in Waiters : ~Wants(w))

Symmetry == Permutations(Waiters)
=============================================================================
