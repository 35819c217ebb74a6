/* The C interface of the Bagua runtime: opaque handles, status codes, raw pointers. No exception
 * leaves it. Every function that returns bagua_code leaves its outputs untouched on failure, and
 * bagua_last_error() then tells what is wrong. Functions of different contexts may run
 * concurrently; functions of one context are thread-safe unless they say otherwise. */
#ifndef BAGUA_H
#define BAGUA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define BAGUA_API __attribute__((visibility("default")))

/* Enumerations are ints, so that a value of none of them is an error, not undefined. */
#ifdef __cplusplus
#define BAGUA_INT : int
#else
#define BAGUA_INT
#endif

typedef enum bagua_code BAGUA_INT {
  BAGUA_OK = 0,
  BAGUA_PENDING = 1,             /* not finished yet; call again */
  BAGUA_INVALID_ARGUMENT = 2,    /* bad input: file, option, environment variable */
  BAGUA_FAILED_PRECONDITION = 3, /* call in the wrong state */
  BAGUA_MISMATCH = 4,            /* ranks disagree; the message names both sides */
  BAGUA_PEER_LOST = 5,           /* a rank died or left; the message names it */
  BAGUA_TIMEOUT = 6,             /* a rank did not answer in time; the message names it */
  BAGUA_UNIMPLEMENTED = 7,
  BAGUA_RESOURCE_EXHAUSTED = 8,
  BAGUA_INTERNAL = 9
} bagua_code;

typedef enum bagua_dtype BAGUA_INT { BAGUA_F32 = 0, BAGUA_F64 = 1 } bagua_dtype;
typedef enum bagua_event BAGUA_INT {
  BAGUA_GRADIENT = 0,
  BAGUA_BEFORE_FORWARD = 1,
  BAGUA_AFTER_UPDATE = 2,
  BAGUA_ASYNC = 3 /* beside the steps: see bagua_bucket.async */
} bagua_event;
typedef enum bagua_gate BAGUA_INT { BAGUA_BEFORE_UPDATE = 0 } bagua_gate;

typedef struct bagua_context bagua_context;
typedef struct bagua_schedule bagua_schedule;
typedef struct bagua_binding bagua_binding;

/* Message of the calling thread's last failed call; valid until its next call. Never NULL. */
BAGUA_API const char *bagua_last_error(void);
BAGUA_API const char *bagua_version(void);

/* ---- Context: one rank of one group ---- */
typedef struct bagua_init_options {
  size_t struct_size;         /* sizeof(bagua_init_options) */
  int rank, world;            /* -1: taken from the environment (torchrun, bagua-run), else alone */
  int local_rank, local_size; /* -1: derived */
  const char *store;          /* "host:port" of rank 0's store, or NULL: from the environment.
                                 Rank 0 listens there; port 0 is for rank 0 of world 1 only. */
  const char *transport;      /* "auto" (NULL), "window", "ucx" */
  int64_t step_timeout_ms;    /* 0: BAGUA_STEP_TIMEOUT_MS or 300000 */
  int64_t bootstrap_timeout_ms; /* 0: BAGUA_BOOTSTRAP_TIMEOUT_MS or 300000 */
} bagua_init_options;

/* Starts the group's store in this process, on a free port, and writes its address "host:port"
 * (with the final 0) to `address`, which has room for `bytes`: for launchers that can only pass an
 * address on. A later bagua_init of rank 0 whose `store` equals it adopts the store; other ranks
 * may connect before. `towards`: name or address of a rank on another host (MASTER_ADDR), so that
 * the address is one that it reaches; NULL: ranks of this host only. */
BAGUA_API bagua_code bagua_store_listen(const char *towards, char *address, size_t bytes);

/* Blocks until every rank has joined. Collective. */
BAGUA_API bagua_code bagua_init(const bagua_init_options *options, bagua_context **context);
/* Says goodbye to the peers, frees everything but memory from bagua_alloc that is still in use.
 * Not thread-safe against other calls of this context. NULL is allowed. */
BAGUA_API void bagua_shutdown(bagua_context *context);
BAGUA_API int bagua_rank(const bagua_context *context);
BAGUA_API int bagua_world(const bagua_context *context);
BAGUA_API int bagua_local_rank(const bagua_context *context);
BAGUA_API int bagua_local_size(const bagua_context *context);
/* One line: where rank and world came from ("torchrun environment"). Owned by the context. */
BAGUA_API const char *bagua_source(const bagua_context *context);

/* Transport memory: peers on this host read it in place, so buckets that lie in it need no copy.
 * Zeroed, 64-byte aligned, valid until bagua_free even after bagua_shutdown. */
BAGUA_API bagua_code bagua_alloc(bagua_context *context, size_t bytes, void **memory);
BAGUA_API void bagua_free(void *memory);

/* ---- Small collectives of the control plane (through the store; not for bulk data) ---- */
/* Compares `text` (JSON) on all ranks; BAGUA_MISMATCH names the first differing path, the ranks and
 * both values. Collective, in one order on all ranks. */
BAGUA_API bagua_code bagua_agree(bagua_context *context, const char *what, const char *text);
BAGUA_API bagua_code bagua_barrier(bagua_context *context, const char *what);
/* Adds to the group's counter `name`, which begins at 0, and gives its new value; `delta` 0 reads
 * it. Waits for no other rank. */
BAGUA_API bagua_code bagua_count(bagua_context *context, const char *name, int64_t delta,
                                 int64_t *value);
/* Root's bytes to all, through the transport; counted apart from payload. Collective. */
BAGUA_API bagua_code bagua_broadcast(bagua_context *context, void *data, size_t bytes, int root);
/* Ends the group: every call that communicates, here and on the other ranks, now or later, fails
 * with BAGUA_PEER_LOST and "rank R (host H, pid P) `reason`", unless an earlier error holds. For
 * a rank that cannot go on. From any thread, also while another is inside a call. */
BAGUA_API bagua_code bagua_abort(bagua_context *context, const char *reason);

/* ---- Schedules ---- */
BAGUA_API bagua_code bagua_schedule_load(const char *path, bagua_schedule **schedule);
BAGUA_API bagua_code bagua_schedule_parse(const void *bytes, size_t size,
                                          bagua_schedule **schedule);
BAGUA_API void bagua_schedule_free(bagua_schedule *schedule);
/* JSON: name, digest, producer, dtypes ["f32"], owns_update, grain, parameters [{name, type,
 * default, per_step}], states [{name, domain, copies, initial, on_resize}] with domain "bucket",
 * "shard", "scalar" or "neighbors", initial a number or "weight" (the bucket's, when bound) and
 * on_resize "mean", "zero" or "repartition", needs_finite (whether it
 * matters how gates are opened, or whether programs after the update run in a step that is not
 * finite), programs [{name, event, roles, writes, gates}] with event "gradient", "before_forward",
 * "after_update" or "async", roles and writes of "gradient" and "weight", gates of "before_update";
 * the async program also has every_unit "steps" or "ms" and staleness (see bagua_binding_every).
 * Owned by the schedule. */
BAGUA_API const char *bagua_schedule_info(const bagua_schedule *schedule);
/* The compiler's formula: payload bytes `rank` sends for one run of the program of `event`, all
 * ranks being on one node, of step 0 and with the default parameters where that matters. */
BAGUA_API bagua_code bagua_schedule_wire_bytes(const bagua_schedule *schedule, bagua_event event,
                                               int world, int rank, int64_t length,
                                               bagua_dtype dtype, int64_t *bytes);

/* ---- Bindings: a schedule on one bucket ---- */
/* A value for a parameter of the schedule; an integer is also a value for an f64. */
typedef struct bagua_parameter {
  const char *name;
  int is_float; /* which of the next two counts */
  int64_t integer;
  double real;
} bagua_parameter;

typedef struct bagua_bucket {
  size_t struct_size;
  const char *name; /* same on all ranks */
  int64_t length;   /* elements, >= 0 */
  bagua_dtype dtype;
  void *gradient; /* length elements, or NULL if no program uses it */
  void *weight;
  int64_t index;                     /* number of the bucket in the job, same on all ranks */
  const bagua_parameter *parameters; /* the schedule's defaults for the others */
  size_t parameter_count;
  /* A schedule with an async program takes two bindings of each bucket. 1: this one runs only the
   * async program, and keeps only the states of that. `weight` is then memory of its own, which
   * holds a copy of the bucket's weight at bagua_start, as bagua_bind does for states that begin
   * as the weight, and after bagua_wait what is to be added to the weight as it is then. `step` of
   * bagua_start is the number of the round, from 0, counted by each rank; round k of one rank meets
   * round k of the others, at whatever steps they are. 0: this one runs all the other programs. */
  int async;
  /* What the binding is for, in messages instead of the bucket, program and line of the schedule,
   * where those mean nothing to the user; NULL: these. */
  const char *description;
} bagua_bucket;

/* Collective, in one order on all ranks: compares schedule digest, bucket, dtype and parameters.
 * The schedule may be freed afterwards; the bucket's memory must outlive the binding. */
BAGUA_API bagua_code bagua_bind(bagua_context *context, const bagua_schedule *schedule,
                                const bagua_bucket *bucket, bagua_binding **binding);
/* Only when no program runs, or after an error. */
BAGUA_API void bagua_unbind(bagua_binding *binding);
/* Starts the program of `event`, if there is one; returns at once. From now until bagua_wait says
 * BAGUA_OK the bucket belongs to the program, as far as its job buffers are read or written.
 * Programs of one binding run one after the other: a start before the last one was waited for is
 * BAGUA_FAILED_PRECONDITION. `step` >= 0. */
BAGUA_API bagua_code bagua_start(bagua_binding *binding, bagua_event event, int64_t step);
/* When rounds of an async binding begin, with the binding's parameters: every `every` (at least 1)
 * of the unit that bagua_schedule_info names, the first when `after` (at least 0) steps are done.
 * BAGUA_FAILED_PRECONDITION for other bindings. Either pointer may be NULL. */
BAGUA_API bagua_code bagua_binding_every(const bagua_binding *binding, int64_t *every,
                                         int64_t *after);
/* Compares `text` (at most 504 bytes; what the ranks' trainers must have in common, in words) with
 * the other ranks' while the binding's next program runs, and fails that program on every rank with
 * BAGUA_MISMATCH, naming two ranks and their texts, if they differ. Each rank compares along with
 * the same program. One small message per rank, apart from payload. */
BAGUA_API bagua_code bagua_compare(bagua_binding *binding, const char *text);
/* Sets a parameter that the schedule declares per_step, for programs that start from now on; the
 * same on all ranks. BAGUA_FAILED_PRECONDITION while a program runs. */
BAGUA_API bagua_code bagua_set_parameter(bagua_binding *binding, const bagua_parameter *parameter);
/* Lets the running program pass `gate`, now or when it comes there; once per run. Nothing happens
 * if it has no such gate. `finite`, the same on all ranks: 0 if some rank's gradients of this step,
 * in whatever bucket, hold a NaN or an infinity; then what the schedule does only in a finite step
 * (weights and states it changes) is left out. See needs_finite in bagua_schedule_info. */
BAGUA_API bagua_code bagua_open_gate(bagua_binding *binding, bagua_gate gate, int finite);
/* Drives communication until the running program has finished (BAGUA_OK; also if none runs), an
 * error, or `slice_ms` >= 0 passed (BAGUA_PENDING); callers loop so that signals are seen. With 0
 * it only looks. */
BAGUA_API bagua_code bagua_wait(bagua_binding *binding, int64_t slice_ms);
/* The same, but BAGUA_OK also when the program can get no further before a gate is opened: what
 * stands before the gate on its queue is done, such as an update of the gradient. */
BAGUA_API bagua_code bagua_wait_gate(bagua_binding *binding, int64_t slice_ms);

/* ---- What a binding keeps from step to step, for checkpoints ---- */
typedef enum {
  BAGUA_STATE_BUCKET,   /* one element for each of the bucket's */
  BAGUA_STATE_SHARD,    /* those of this rank's shard */
  BAGUA_STATE_SCALAR,   /* one */
  BAGUA_STATE_NEIGHBORS /* whole buckets end to end */
} bagua_state_domain;
typedef enum {
  BAGUA_RESIZE_MEAN,       /* of all ranks' */
  BAGUA_RESIZE_ZERO,       /* begin anew */
  BAGUA_RESIZE_REPARTITION /* shards laid end to end, cut anew */
} bagua_on_resize;
typedef struct bagua_state {
  size_t struct_size;
  const char *name; /* owned by the binding */
  bagua_state_domain domain;
  bagua_on_resize on_resize; /* what becomes of it in another world */
  int64_t elements;          /* of the bucket's dtype, on this rank */
  int64_t offset;            /* shard: its first element in the bucket */
} bagua_state;
BAGUA_API bagua_code bagua_state_count(const bagua_binding *binding, size_t *count);
BAGUA_API bagua_code bagua_state_info(const bagua_binding *binding, size_t index,
                                      bagua_state *state);
/* Copies the value out or in; `bytes` is elements * element size. BAGUA_FAILED_PRECONDITION while a
 * program runs, but for reading from an async binding: it gives what the last round to end left. */
BAGUA_API bagua_code bagua_state_read(const bagua_binding *binding, size_t index, void *data,
                                      size_t bytes);
BAGUA_API bagua_code bagua_state_write(bagua_binding *binding, size_t index, const void *data,
                                       size_t bytes);
/* Sets `finite` to 1 if no element is a NaN or an infinity, else to 0. Any thread. */
BAGUA_API bagua_code bagua_all_finite(const void *data, int64_t length, bagua_dtype dtype,
                                      int *finite);

/* ---- Watching ---- */
typedef struct bagua_statistics {
  size_t struct_size;
  uint64_t runs;       /* programs finished */
  uint64_t bytes_raw;  /* bucket bytes of those runs (length * element size) */
  uint64_t bytes_wire; /* payload given to send, codec headers included */
  uint64_t wait_ns;    /* time spent inside bagua_wait */
  uint64_t busy_ns;    /* from start to finish of programs, summed */
} bagua_statistics;
BAGUA_API bagua_code bagua_binding_statistics(const bagua_binding *binding,
                                              bagua_statistics *statistics);
/* The compiler's formula with the binding's parameters of now: payload bytes that the program of
 * `event` sends in one run of `step`. */
BAGUA_API bagua_code bagua_binding_wire_bytes(const bagua_binding *binding, bagua_event event,
                                              int64_t step, int64_t *bytes);
/* Sets `communicates` to 1 if the program of `event` sends anything in `step` on any rank, else to
 * 0: the same on all ranks. Exact for a schedule with an async program whose other programs' costs
 * depend on the step (an all-reduce while it warms up); else 1 if the program is there and world >
 * 1. */
BAGUA_API bagua_code bagua_binding_communicates(const bagua_binding *binding, bagua_event event,
                                                int64_t step, int *communicates);
/* Deadlines do not run while paused > 0 (nested). For long work outside communication. */
BAGUA_API void bagua_pause_timeout(bagua_context *context, int pause /* +1 or -1 */);
/* Writes this rank's Chrome trace so far to `path` (JSON). BAGUA_TRACE_FILE does it at shutdown. */
BAGUA_API bagua_code bagua_trace_write(bagua_context *context, const char *path);

#if defined(__cplusplus)
}
#endif
#endif
