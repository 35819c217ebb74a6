// The C interface as C++ objects that clean up after themselves and throw bagua::Error. Header
// only.
#pragma once

#include "bagua/bagua.h"

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bagua {

class Error : public std::runtime_error {
public:
  Error(bagua_code code, const std::string &message) : std::runtime_error(message), code_(code) {}
  bagua_code code() const noexcept { return code_; }

private:
  bagua_code code_;
};

/// Throws unless `code` is BAGUA_OK or BAGUA_PENDING; says whether it is BAGUA_OK.
inline bool check(bagua_code code) {
  if (code == BAGUA_OK || code == BAGUA_PENDING)
    return code == BAGUA_OK;
  throw Error(code, bagua_last_error());
}

/// Owns a handle; `Free` gives it back.
template <typename T, void (*Free)(T *)> class Handle {
public:
  Handle() = default;
  explicit Handle(T *raw) : raw_(raw) {}
  ~Handle() { Free(raw_); }
  Handle(Handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Handle &operator=(Handle &&other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  Handle(const Handle &) = delete;
  Handle &operator=(const Handle &) = delete;
  T *get() const { return raw_; }

private:
  T *raw_ = nullptr;
};

/// Transport memory; outlives its context if need be.
class Memory {
public:
  Memory() = default;
  Memory(void *data, size_t bytes) : handle_(data), bytes_(bytes) {}
  void *data() const { return handle_.get(); }
  template <typename T> T *as() const { return static_cast<T *>(handle_.get()); }
  size_t bytes() const { return bytes_; }

private:
  Handle<void, bagua_free> handle_;
  size_t bytes_ = 0;
};

class Schedule {
public:
  static Schedule load(const std::string &path) {
    bagua_schedule *raw = nullptr;
    check(bagua_schedule_load(path.c_str(), &raw));
    return Schedule(raw);
  }
  static Schedule parse(const void *bytes, size_t size) {
    bagua_schedule *raw = nullptr;
    check(bagua_schedule_parse(bytes, size, &raw));
    return Schedule(raw);
  }
  /// JSON, see bagua_schedule_info().
  std::string info() const { return bagua_schedule_info(handle_.get()); }
  int64_t wireBytes(bagua_event event, int world, int rank, int64_t length,
                    bagua_dtype dtype) const {
    int64_t bytes = 0;
    check(bagua_schedule_wire_bytes(handle_.get(), event, world, rank, length, dtype, &bytes));
    return bytes;
  }
  const bagua_schedule *get() const { return handle_.get(); }

private:
  explicit Schedule(bagua_schedule *raw) : handle_(raw) {}
  Handle<bagua_schedule, bagua_schedule_free> handle_;
};

class Binding {
public:
  explicit Binding(bagua_binding *raw) : handle_(raw) {}
  void start(bagua_event event, int64_t step) { check(bagua_start(handle_.get(), event, step)); }
  void compare(const std::string &text) { check(bagua_compare(handle_.get(), text.c_str())); }
  void openGate(bagua_gate gate, bool finite = true) {
    check(bagua_open_gate(handle_.get(), gate, finite ? 1 : 0));
  }
  void setParameter(const char *name, int64_t value) {
    setParameter(bagua_parameter{name, 0, value, 0});
  }
  void setParameter(const char *name, double value) {
    setParameter(bagua_parameter{name, 1, 0, value});
  }
  void setParameter(const bagua_parameter &parameter) {
    check(bagua_set_parameter(handle_.get(), &parameter));
  }
  /// True when the program has finished, false after `slice`.
  bool wait(std::chrono::milliseconds slice) {
    return check(bagua_wait(handle_.get(), slice.count()));
  }
  void wait() {
    while (!wait(std::chrono::milliseconds(100))) {
    }
  }
  /// True when the program has finished or stands at a shut gate, false after `slice`.
  bool waitGate(std::chrono::milliseconds slice) {
    return check(bagua_wait_gate(handle_.get(), slice.count()));
  }
  void waitGate() {
    while (!waitGate(std::chrono::milliseconds(100))) {
    }
  }
  /// What is kept from step to step, in the schedule's order.
  std::vector<bagua_state> states() const {
    size_t count = 0;
    check(bagua_state_count(handle_.get(), &count));
    std::vector<bagua_state> result(count);
    for (size_t i = 0; i < count; ++i) {
      result[i].struct_size = sizeof(bagua_state);
      check(bagua_state_info(handle_.get(), i, &result[i]));
    }
    return result;
  }
  void readState(size_t index, void *data, size_t bytes) const {
    check(bagua_state_read(handle_.get(), index, data, bytes));
  }
  void writeState(size_t index, const void *data, size_t bytes) {
    check(bagua_state_write(handle_.get(), index, data, bytes));
  }
  bagua_statistics statistics() const {
    bagua_statistics result = {};
    result.struct_size = sizeof result;
    check(bagua_binding_statistics(handle_.get(), &result));
    return result;
  }
  /// The formula: what the program of `event` sends in one run of `step`.
  int64_t wireBytes(bagua_event event, int64_t step) const {
    int64_t bytes = 0;
    check(bagua_binding_wire_bytes(handle_.get(), event, step, &bytes));
    return bytes;
  }
  /// Of an async binding: how often rounds begin, in the unit that the schedule's info names.
  int64_t every() const {
    int64_t result = 0;
    check(bagua_binding_every(handle_.get(), &result, nullptr));
    return result;
  }
  /// Of an async binding: steps before the first round.
  int64_t after() const {
    int64_t result = 0;
    check(bagua_binding_every(handle_.get(), nullptr, &result));
    return result;
  }
  /// Whether the program of `event` sends anything in `step` on any rank.
  bool communicates(bagua_event event, int64_t step) const {
    int result = 0;
    check(bagua_binding_communicates(handle_.get(), event, step, &result));
    return result != 0;
  }
  bagua_binding *get() const { return handle_.get(); }

private:
  Handle<bagua_binding, bagua_unbind> handle_;
};

/// One rank of one group. Bindings may be destroyed after it, but do nothing any more.
class Context {
public:
  /// Everything from the environment.
  static bagua_init_options environment() {
    bagua_init_options options = {};
    options.struct_size = sizeof options;
    options.rank = options.world = options.local_rank = options.local_size = -1;
    return options;
  }
  explicit Context(const bagua_init_options &options = environment()) {
    bagua_context *raw = nullptr;
    check(bagua_init(&options, &raw));
    handle_ = Handle<bagua_context, bagua_shutdown>(raw);
  }

  int rank() const { return bagua_rank(handle_.get()); }
  int world() const { return bagua_world(handle_.get()); }
  int localRank() const { return bagua_local_rank(handle_.get()); }
  int localSize() const { return bagua_local_size(handle_.get()); }
  std::string source() const { return bagua_source(handle_.get()); }

  Memory allocate(size_t bytes) {
    void *raw = nullptr;
    check(bagua_alloc(handle_.get(), bytes, &raw));
    return Memory(raw, bytes);
  }
  void agree(const std::string &what, const std::string &json) {
    check(bagua_agree(handle_.get(), what.c_str(), json.c_str()));
  }
  void barrier(const std::string &what) { check(bagua_barrier(handle_.get(), what.c_str())); }
  void broadcast(void *data, size_t bytes, int root) {
    check(bagua_broadcast(handle_.get(), data, bytes, root));
  }
  /// Adds to the group's counter; its new value. Waits for no other rank.
  int64_t count(const std::string &name, int64_t delta) {
    int64_t value = 0;
    check(bagua_count(handle_.get(), name.c_str(), delta, &value));
    return value;
  }
  void abort(const std::string &reason) { check(bagua_abort(handle_.get(), reason.c_str())); }
  /// `bucket.struct_size` is filled in.
  Binding bind(const Schedule &schedule, bagua_bucket bucket) {
    bucket.struct_size = sizeof bucket;
    bagua_binding *raw = nullptr;
    check(bagua_bind(handle_.get(), schedule.get(), &bucket, &raw));
    return Binding(raw);
  }
  void writeTrace(const std::string &path) {
    check(bagua_trace_write(handle_.get(), path.c_str()));
  }
  bagua_context *get() const { return handle_.get(); }

  /// Deadlines do not run while one of these lives.
  class PausedTimeout {
  public:
    explicit PausedTimeout(const Context &context) : context_(context.get()) {
      bagua_pause_timeout(context_, 1);
    }
    ~PausedTimeout() { bagua_pause_timeout(context_, -1); }
    PausedTimeout(const PausedTimeout &) = delete;
    PausedTimeout &operator=(const PausedTimeout &) = delete;

  private:
    bagua_context *context_;
  };

private:
  Handle<bagua_context, bagua_shutdown> handle_;
};

} // namespace bagua
