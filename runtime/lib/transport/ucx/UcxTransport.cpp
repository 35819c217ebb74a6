// Messages between hosts: UCX tag messages, each invited by a credit from its receiver.
#include "bagua/Ucx.h"

#include "Channel.h"
#include "SharedMemory.h"
#include "ucx/NetworkDevices.h"
#include "ucx/UcxLibrary.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace bagua::rt {
namespace {

constexpr unsigned kControlId = 1;
constexpr auto kLeaveTimeout =
    std::chrono::seconds(2); ///< For the peers' word that the last bytes have come.
constexpr auto kAbortTimeout = std::chrono::milliseconds(50);
constexpr uint32_t kSpins = 50;
constexpr auto kSpinTime = std::chrono::microseconds(100);
constexpr uint32_t kProgressMax = 64; ///< UCX progress calls within one poll().

const UcxLibrary *const &ucx = UcxLibrary::loaded;

/// Every UCX status becomes a Status here.
Status ucxStatus(ucs_status_t status, const std::string &what) {
  std::string message = absl::StrCat(what, ": ", ucx->ucs_status_string(status), " (UCX status ",
                                     static_cast<int>(status), ")");
  switch (status) {
  case UCS_OK:
    return absl::OkStatus();
  case UCS_ERR_NO_MEMORY:
  case UCS_ERR_NO_RESOURCE:
  case UCS_ERR_EXCEEDS_LIMIT:
    return absl::ResourceExhaustedError(message);
  case UCS_ERR_UNREACHABLE:
  case UCS_ERR_NOT_CONNECTED:
  case UCS_ERR_CONNECTION_RESET:
  case UCS_ERR_REJECTED:
  case UCS_ERR_ENDPOINT_TIMEOUT:
  case UCS_ERR_TIMED_OUT:
  case UCS_ERR_IO_ERROR:
  case UCS_ERR_CANCELED: // What is pending on an endpoint that fails.
    return absl::UnavailableError(message);
  case UCS_ERR_UNSUPPORTED:
  case UCS_ERR_NO_DEVICE:
    return absl::UnimplementedError(message);
  default:
    return absl::InternalError(message);
  }
}

/// A control message: fixed layout, little-endian hosts only (as everywhere on the wire).
struct Control {
  enum Kind : uint32_t {
    Credit = 1,   ///< A receive of `bytes` is posted; send message `number` with `tag`.
    Mismatch = 2, ///< Message `number`, which the credit invited, has `bytes`.
  };
  uint32_t magic = kMagic;
  uint32_t kind = 0;
  uint64_t binding = 0;
  uint32_t channel = 0, opening = 0;
  int32_t source = 0; ///< The rank that sends this.
  uint32_t reserved = 0;
  uint64_t number = 0, bytes = 0, tag = 0;
  static constexpr uint32_t kMagic = 0x31584355; // "UCX1"
};
static_assert(sizeof(Control) == 56, "goes on the wire: no padding");

/// Receives that the peer has posted and we have not served: a growing ring.
struct CreditQueue {
  struct Entry {
    uint64_t bytes, tag;
  };
  std::vector<Entry> ring = std::vector<Entry>(8);
  uint64_t received = 0, used = 0;

  void push(const Entry &entry) {
    if (received - used == ring.size()) { // Only until the peer's number of receives is known.
      std::vector<Entry> larger(ring.size() * 2);
      for (uint64_t i = used; i < received; ++i)
        larger[i % larger.size()] = ring[i % ring.size()];
      ring = std::move(larger);
    }
    ring[received++ % ring.size()] = entry;
  }
};

struct UcxPeer {
  std::string name;    ///< "rank 2 (host a, pid 17)".
  std::string address; ///< UCX's own, for ucp_ep_create.
  ucp_ep_h endpoint = nullptr;
  ucs_status_t failure =
      UCS_OK;           ///< From the error handler: a hint, fatal once something is pending.
  uint32_t pending = 0; ///< Sends and receives that have not completed.
};

struct UcxChannel final : Channel {
  using Channel::Channel;
  /// State of one operation as UCX sees it. Slots are few and stay in place.
  struct Slot {
    SendOp *send = nullptr;
    RecvOp *recv = nullptr;
    void *request = nullptr;
    bool done = false;
    ucs_status_t status = UCS_OK;
    size_t bytes = 0; ///< Received.
  };
  struct Outbox {
    Control message;
    bool busy = false; ///< UCX still reads `message`.
  };

  UcxPeer *to = nullptr;
  CreditQueue *credits = nullptr;

  std::vector<Slot> sends;            ///< In no order.
  std::vector<uint32_t> freeSends;    ///< Indices into `sends`; a stack.
  std::vector<uint32_t> startedSends; ///< Given to UCX, not reported yet.
  std::vector<uint32_t> waitingSends; ///< Ring by message number: waiting for credit.
  uint64_t sendsPosted = 0, sendsStarted = 0;

  std::vector<Slot> recvs; ///< Ring by message number.
  uint64_t recvsPosted = 0, recvsArrived = 0;
  uint32_t recvsInFlight = 0;
  uint32_t tagBase = 0; ///< Unique among this rank's channels; the upper half of its tags.
  std::vector<Outbox> outbox;
  uint64_t outboxNext = 0;

  bool active = false; ///< In the transport's list of channels to look at.
  bool idle() const {
    return sendsStarted == sendsPosted && startedSends.empty() && recvsArrived == recvsPosted;
  }
};

class UcxTransport final : public Transport, private Doorbell::SleepHook {
public:
  UcxTransport(int rank, int world, std::shared_ptr<Doorbell> doorbell)
      : rank_(rank), pid_(getpid()), doorbell_(std::move(doorbell)),
        peers_(static_cast<size_t>(world)) {}
  ~UcxTransport() override;
  Status setUp(Group &group);

  const char *name() const override { return "ucx"; }
  StatusOr<Memory> allocate(size_t bytes) override;
  bool needsLanding(int) const override { return true; }
  StatusOr<Channel *> openChannel(uint64_t binding, uint32_t channel, int peer, size_t bytesMax,
                                  uint32_t sendsMax, uint32_t recvsMax) override;
  void closeBinding(uint64_t binding) override;
  Status send(Channel &channel, SendOp &op) override;
  Status recv(Channel &channel, RecvOp &op) override;
  Status release(Channel &channel, RecvOp &op) override;
  StatusOr<bool> poll() override;
  void abort(const Status &reason) override;

private:
  struct Key {
    int peer;
    ChannelKey channel;
    auto operator<=>(const Key &) const = default;
  };

  bool beforeSleep() override;
  void watch();
  Status makeWorker(Group &group);
  Status connect(UcxPeer &peer);
  Status sendControl(UcxChannel &channel, const Control &control);
  Status start(UcxChannel &channel);
  bool collectSends(UcxChannel &channel);
  bool collectRecvs(UcxChannel &channel);
  void onControl(const Control &control);
  void closeEndpoints(bool force, std::chrono::milliseconds timeout);
  Status fail(Status reason) {
    abort(reason);
    return error_;
  }
  Status lost(const UcxPeer &peer) const;
  void activate(UcxChannel &channel) {
    if (!channel.active)
      active_.push_back(&channel);
    channel.active = true;
  }
  void note(Status error) {
    if (noted_.ok())
      noted_ = std::move(error);
  }

  const int rank_;
  const pid_t pid_;
  Status error_;
  Status noted_; ///< An error met inside a UCX callback; poll() makes it permanent.
  std::shared_ptr<Doorbell> doorbell_;

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  Group *group_ = nullptr; ///< Set by setUp().
  std::vector<UcxPeer> peers_;
  std::vector<std::unique_ptr<UcxChannel>> channels_;
  std::vector<std::unique_ptr<UcxChannel>>
      graveyard_; ///< Closed after an error: UCX may still know them.
  std::vector<UcxChannel *>
      active_; ///< Channels that are not idle; openChannel() reserves room for all.
  std::map<std::tuple<uint64_t, uint32_t, int>, uint32_t> openings_;
  std::map<Key, std::unique_ptr<CreditQueue>> credits_;
  std::map<Key, UcxChannel *> byKey_;
  uint32_t nextTagBase_ = 1;
  bool changed_ = false;                            ///< Set by callbacks.
  uint32_t idleWaits_ = 0;                          ///< Waits since something changed.
  std::chrono::steady_clock::time_point idleSince_; ///< The first of them.

  // The watcher sleeps on the event descriptor while it is armed, once per beforeSleep().
  FileDescriptor epoll_, stop_;
  int eventDescriptor_ = -1;
  std::thread watcher_;
};

// ---- Set-up and end ----

/// Threads started while this lives take no signals: those are for the job's own threads.
class BlockedSignals {
public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_;
};

Status UcxTransport::makeWorker(Group &group) {
  BlockedSignals blocked; // UCX starts a thread.
  BAGUA_TRY(UcxLibrary::load());
  ucp_config_t *config = nullptr;
  if (ucs_status_t status = ucx->ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
    return ucxStatus(status, "cannot read UCX's configuration");
  std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)> guard(config,
                                                                     ucx->ucp_config_release);
  NetworkDevices devices = networkDevices(group.peer(rank_).address);
  auto where = [&](const char *what) {
    return absl::StrCat(what, " for the advertised address ", group.peer(rank_).address,
                        " on device \"", devices.names, "\"");
  };
  struct Setting {
    const char *name;
    std::string value;
  };
  std::vector<Setting> settings = {{"TLS", devices.hasRdma ? "tcp,rc,ud,dc" : "tcp"}};
  if (!devices.names.empty() && std::getenv("UCX_NET_DEVICES") == nullptr)
    settings.push_back({"NET_DEVICES", devices.names});
  for (const Setting &setting : settings)
    if (ucs_status_t status = ucx->ucp_config_modify(config, setting.name, setting.value.c_str());
        status != UCS_OK)
      return ucxStatus(status, absl::StrCat("UCX refuses ", setting.name, "=", setting.value));

  ucp_params_t parameters{};
  parameters.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  parameters.estimated_num_eps = peers_.size();
  parameters.name = "bagua";
  if (ucs_status_t status =
          ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &context_);
      status != UCS_OK)
    return ucxStatus(status, where("cannot start UCX"));

  ucp_worker_params_t workerParameters{};
  workerParameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  workerParameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (ucs_status_t status = ucx->ucp_worker_create(context_, &workerParameters, &worker_);
      status != UCS_OK)
    return ucxStatus(status, where("cannot start a UCX worker"));

  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kControlId;
  handler.arg = this;
  handler.cb = [](void *self, const void *header, size_t headerBytes, void *, size_t,
                  const ucp_am_recv_param_t *) {
    auto *transport = static_cast<UcxTransport *>(self);
    Control control;
    if (headerBytes != sizeof control) {
      transport->note(absl::InternalError(
          absl::StrCat("a control message of ", headerBytes, " bytes, expected ", sizeof control)));
      return UCS_OK;
    }
    std::memcpy(&control, header, sizeof control);
    transport->onControl(control);
    return UCS_OK;
  };
  if (ucs_status_t status = ucx->ucp_worker_set_am_recv_handler(worker_, &handler);
      status != UCS_OK)
    return ucxStatus(status, "cannot receive UCX's active messages");

  if (ucs_status_t status = ucx->ucp_worker_get_efd(worker_, &eventDescriptor_); status != UCS_OK)
    return ucxStatus(status, "UCX gives no event descriptor");
  epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event stopEvent{.events = EPOLLIN, .data = {.fd = stop_.get()}};
  epoll_event idle{.events = EPOLLONESHOT, .data = {.fd = eventDescriptor_}};
  if (!epoll_ || !stop_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &stopEvent) != 0 ||
      epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, eventDescriptor_, &idle) != 0)
    return absl::ResourceExhaustedError(
        absl::StrCat("no descriptors to watch UCX: ", strerror(errno)));
  return absl::OkStatus();
}

Status UcxTransport::setUp(Group &group) {
  group_ = &group;
  Status made = makeWorker(group);
  std::string own;
  if (made.ok()) {
    ucp_address_t *address = nullptr;
    size_t bytes = 0;
    ucs_status_t status = ucx->ucp_worker_get_address(worker_, &address, &bytes);
    made = ucxStatus(status, "UCX gives no address");
    if (made.ok()) {
      own.assign(reinterpret_cast<const char *>(address), bytes);
      ucx->ucp_worker_release_address(worker_, address);
    }
  }
  // A failure is exchanged like an address, so that nobody waits for this rank.
  BAGUA_ASSIGN(int64_t attempt,
               group.store().add(absl::StrCat("transport/ucx/attempts/", rank_), 1));
  BAGUA_ASSIGN(std::vector<std::string> answers,
               group.allGather(absl::StrCat("transport/ucx/", attempt, "/address"),
                               made.ok() ? "ok " + own : absl::StrCat("error ", made.ToString())));
  BAGUA_TRY(made);
  for (size_t r = 0; r < peers_.size(); ++r) {
    const PeerInfo &peer = group.peer(static_cast<int>(r));
    peers_[r].name = absl::StrCat("rank ", r, " (host ", peer.host, ", pid ", peer.pid, ")");
    if (answers[r].compare(0, 3, "ok ") != 0)
      return absl::UnavailableError(
          absl::StrCat(peers_[r].name, " has no UCX transport: ", answers[r]));
    peers_[r].address = answers[r].substr(3);
  }
  BlockedSignals blocked;
  watcher_ = std::thread([this] { watch(); });
  doorbell_->setSleepHook(this);
  return absl::OkStatus();
}

UcxTransport::~UcxTransport() {
  if (pid_ !=
      getpid()) { // A forked child has no watcher, and must not say goodbye in its parent's name.
    // Its handle names a thread of the parent: there is nothing to join or to detach.
    static auto *const foreign = new std::vector<std::thread>();
    foreign->push_back(std::move(watcher_));
    return;
  }
  if (watcher_.joinable()) {
    doorbell_->setSleepHook(nullptr);
    uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof one);
    watcher_.join();
  }
  if (worker_ != nullptr) {
    if (error_.ok())
      closeEndpoints(false, kLeaveTimeout);
    closeEndpoints(true, kAbortTimeout);
    ucx->ucp_worker_destroy(worker_);
  }
  if (context_ != nullptr)
    ucx->ucp_cleanup(context_);
}

/// `force`: drop what is under way. Else flush it first; the receiver takes it from its kernel.
void UcxTransport::closeEndpoints(bool force, std::chrono::milliseconds timeout) {
  auto deadline = std::chrono::steady_clock::now() + timeout;
  std::vector<void *> requests;
  for (UcxPeer &peer : peers_) {
    if (peer.endpoint == nullptr)
      continue;
    ucp_request_param_t parameters{};
    if (force || peer.failure != UCS_OK) {
      parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }
    ucs_status_ptr_t request = ucx->ucp_ep_close_nbx(peer.endpoint, &parameters);
    peer.endpoint = nullptr;
    if (UCS_PTR_IS_PTR(request))
      requests.push_back(request);
  }
  while (!requests.empty()) {
    ucx->ucp_worker_progress(worker_);
    std::erase_if(requests, [](void *request) {
      if (ucx->ucp_request_check_status(request) == UCS_INPROGRESS)
        return false;
      ucx->ucp_request_free(request);
      return true;
    });
    if (std::chrono::steady_clock::now() > deadline)
      break;
    if (!requests.empty())
      std::this_thread::yield();
  }
  for (void *request : requests)
    ucx->ucp_request_free(request); // UCX finishes it and then frees it.
}

// ---- Sleeping ----

bool UcxTransport::beforeSleep() {
  if (!error_.ok())
    return true; // Nothing of ours will come.
  // Nothing rings for us before the descriptor is armed, so spin by polling.
  if (++idleWaits_ == 1)
    idleSince_ = std::chrono::steady_clock::now();
  if (idleWaits_ <= kSpins && std::chrono::steady_clock::now() - idleSince_ < kSpinTime) {
    sched_yield();
    return false;
  }
  if (ucx->ucp_worker_arm(worker_) != UCS_OK)
    return false;
  epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.fd = eventDescriptor_}};
  return epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, eventDescriptor_, &event) == 0;
}

void UcxTransport::watch() {
  while (true) {
    epoll_event event{};
    int count = epoll_wait(epoll_.get(), &event, 1, -1);
    if (count < 0 && errno != EINTR)
      return;
    if (count != 1)
      continue;
    if (event.data.fd == stop_.get())
      return;
    doorbell_->ring();
  }
}

// ---- Channels ----

StatusOr<Memory> UcxTransport::allocate(size_t bytes) {
  BAGUA_TRY(error_);
  return allocatePrivate(bytes);
}

Status UcxTransport::lost(const UcxPeer &peer) const {
  auto rank = static_cast<int>(&peer - peers_.data());
  (void)group_->describePeer(
      rank); // The store's answer comes behind a goodbye that it has passed on.
  if (std::string departure = group_->departure(rank); !departure.empty())
    return absl::UnavailableError(
        absl::StrCat(departure, " while rank ", rank_, " communicated with it"));
  return ucxStatus(peer.failure, absl::StrCat(peer.name, " is lost: its connection broke"));
}

Status UcxTransport::connect(UcxPeer &peer) {
  if (peer.endpoint != nullptr)
    return absl::OkStatus();
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t *>(peer.address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.arg = &peer;
  parameters.err_handler.cb = [](void *arg, ucp_ep_h, ucs_status_t status) {
    auto *peer = static_cast<UcxPeer *>(arg);
    if (peer->failure == UCS_OK)
      peer->failure = status;
  };
  return ucxStatus(ucx->ucp_ep_create(worker_, &parameters, &peer.endpoint),
                   absl::StrCat("cannot reach ", peer.name));
}

StatusOr<Channel *> UcxTransport::openChannel(uint64_t binding, uint32_t channel, int peer,
                                              size_t bytesMax, uint32_t sendsMax,
                                              uint32_t recvsMax) {
  BAGUA_TRY(error_);
  BAGUA_TRY(checkOpen(rank_, static_cast<int>(peers_.size()), peer));
  UcxPeer &to = peers_[static_cast<size_t>(peer)];
  BAGUA_TRY(connect(to));
  ChannelKey key{binding, channel, openings_[{binding, channel, peer}]++};
  auto opened =
      std::make_unique<UcxChannel>(*this, key, peer, ChannelLimits{bytesMax, sendsMax, recvsMax});
  opened->to = &to;
  std::unique_ptr<CreditQueue> &credits = credits_[{peer, key}]; // Credits may have come already.
  if (!credits)
    credits = std::make_unique<CreditQueue>();
  opened->credits = credits.get();
  opened->sends.resize(std::max(sendsMax, 1u));
  opened->recvs.resize(std::max(recvsMax, 1u));
  opened->waitingSends.resize(opened->sends.size());
  opened->startedSends.reserve(opened->sends.size());
  for (size_t i = opened->sends.size(); i-- > 0;)
    opened->freeSends.push_back(static_cast<uint32_t>(i));
  opened->outbox.resize(2 * std::max(recvsMax, 1u) + 1);
  opened->tagBase = nextTagBase_++;
  byKey_[{peer, key}] = opened.get();
  channels_.push_back(std::move(opened));
  active_.reserve(channels_.size());
  return channels_.back().get();
}

void UcxTransport::closeBinding(uint64_t binding) {
  std::erase_if(active_, [&](UcxChannel *channel) { return channel->key.binding == binding; });
  std::erase_if(channels_, [&](std::unique_ptr<UcxChannel> &channel) {
    if (channel->key.binding != binding)
      return false;
    // UCX may still read a credit that has overtaken its own completion.
    auto deadline = std::chrono::steady_clock::now() + kLeaveTimeout;
    auto busy = [](const UcxChannel::Outbox &box) { return box.busy; };
    while (error_.ok() && std::any_of(channel->outbox.begin(), channel->outbox.end(), busy) &&
           std::chrono::steady_clock::now() < deadline)
      ucx->ucp_worker_progress(worker_);
    byKey_.erase({channel->peer, channel->key});
    if (error_.ok())
      credits_.erase({channel->peer, channel->key});
    else
      graveyard_.push_back(std::move(channel));
    return true;
  });
}

// ---- Data ----

void UcxTransport::onControl(const Control &control) {
  if (control.magic != Control::kMagic || control.source < 0 ||
      static_cast<size_t>(control.source) >= peers_.size()) {
    note(absl::InternalError("a control message that no rank of this group sends"));
    return;
  }
  Key key{control.source, {control.binding, control.channel, control.opening}};
  if (control.kind == Control::Credit) {
    auto found = credits_.find(key);
    if (found == credits_.end()) // The peer opened, and received, before us.
      found = credits_.emplace(key, std::make_unique<CreditQueue>()).first;
    if (found->second->received != control.number) {
      note(
          absl::InternalError(absl::StrCat("credit ", control.number, " from rank ", control.source,
                                           ", expected ", found->second->received)));
      return;
    }
    found->second->push({control.bytes, control.tag});
    changed_ = true;
  } else if (auto found = byKey_.find(key);
             found != byKey_.end() && control.kind == Control::Mismatch) {
    UcxChannel &channel = *found->second;
    const UcxChannel::Slot &slot = channel.recvs[control.number % channel.recvs.size()];
    if (slot.recv != nullptr)
      note(sizeMismatch(channel, control.bytes, slot.recv->bytes));
  }
}

Status UcxTransport::sendControl(UcxChannel &channel, const Control &control) {
  UcxChannel::Outbox &box = channel.outbox[channel.outboxNext++ % channel.outbox.size()];
  auto deadline = std::chrono::steady_clock::now() + kLeaveTimeout;
  while (box.busy) { // Twice as many boxes as receives: in practice never.
    ucx->ucp_worker_progress(worker_);
    if (std::chrono::steady_clock::now() > deadline)
      return absl::ResourceExhaustedError(
          absl::StrCat(describe(channel), ": UCX does not send control messages"));
  }
  box.message = control;
  box.busy = true;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.user_data = &box;
  parameters.cb.send = [](void *request, ucs_status_t, void *box) {
    static_cast<UcxChannel::Outbox *>(box)->busy =
        false; // An error shows in the endpoint's handler.
    ucx->ucp_request_free(request);
  };
  ucs_status_ptr_t request = ucx->ucp_am_send_nbx(channel.to->endpoint, kControlId, &box.message,
                                                  sizeof box.message, nullptr, 0, &parameters);
  if (UCS_PTR_IS_PTR(request))
    return absl::OkStatus();
  box.busy = false;
  if (request == nullptr)
    return absl::OkStatus();
  return ucxStatus(UCS_PTR_RAW_STATUS(request),
                   absl::StrCat("cannot send a credit to ", channel.to->name));
}

Status UcxTransport::send(Channel &base, SendOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<UcxChannel &>(base);
  BAGUA_TRY(checkSend(channel, op,
                      static_cast<uint32_t>(channel.sends.size() - channel.freeSends.size())));
  if (channel.to->failure != UCS_OK)
    return fail(lost(*channel.to));
  op.sent = false;
  uint32_t index = channel.freeSends.back();
  channel.freeSends.pop_back();
  channel.waitingSends[channel.sendsPosted++ % channel.waitingSends.size()] = index;
  UcxChannel::Slot &slot = channel.sends[index];
  slot.send = &op;
  slot.done = false;
  slot.status = UCS_OK;
  slot.request = nullptr;
  ++channel.to->pending;
  activate(channel);
  if (Status status = start(channel); !status.ok())
    return fail(status);
  return absl::OkStatus();
}

/// Sends what credits invite.
Status UcxTransport::start(UcxChannel &channel) {
  CreditQueue &credits = *channel.credits;
  while (channel.sendsStarted != channel.sendsPosted && credits.used != credits.received) {
    uint64_t number = channel.sendsStarted;
    const CreditQueue::Entry &credit = credits.ring[credits.used % credits.ring.size()];
    uint32_t index = channel.waitingSends[number % channel.waitingSends.size()];
    UcxChannel::Slot &slot = channel.sends[index];
    if (credit.bytes != slot.send->bytes) {
      Control control;
      control.kind = Control::Mismatch;
      control.binding = channel.key.binding;
      control.channel = channel.key.channel;
      control.opening = channel.key.opening;
      control.source = rank_;
      control.number = number;
      control.bytes = slot.send->bytes;
      BAGUA_TRY(sendControl(channel, control));
      for (uint32_t i = 0; i < kProgressMax; ++i) // The last this transport does.
        ucx->ucp_worker_progress(worker_);
      return sizeMismatch(channel, slot.send->bytes, credit.bytes);
    }
    ++credits.used;
    ++channel.sendsStarted;
    channel.startedSends.push_back(index);
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    parameters.user_data = &slot;
    parameters.cb.send = [](void *request, ucs_status_t status, void *user) {
      auto *slot = static_cast<UcxChannel::Slot *>(user);
      slot->done = true;
      slot->status = status;
      slot->request = nullptr;
      ucx->ucp_request_free(request);
    };
    ucs_status_ptr_t request = ucx->ucp_tag_send_nbx(channel.to->endpoint, slot.send->data,
                                                     slot.send->bytes, credit.tag, &parameters);
    if (UCS_PTR_IS_ERR(request))
      return ucxStatus(UCS_PTR_STATUS(request),
                       absl::StrCat(channel.to->name, ", ", describe(channel), ": send"));
    if (request == nullptr)
      slot.done = true;
    else if (!slot.done)
      slot.request = request;
  }
  return absl::OkStatus();
}

Status UcxTransport::recv(Channel &base, RecvOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<UcxChannel &>(base);
  BAGUA_TRY(checkRecv(channel, op, channel.recvsInFlight, true));
  if (channel.to->failure != UCS_OK)
    return fail(lost(*channel.to));
  op.arrived = false;
  op.view = nullptr;
  uint64_t number = channel.recvsPosted++;
  UcxChannel::Slot &slot = channel.recvs[number % channel.recvs.size()];
  slot.recv = &op;
  slot.done = false;
  slot.status = UCS_OK;
  slot.bytes = 0;
  ++channel.recvsInFlight;
  ++channel.to->pending;
  activate(channel);

  uint64_t tag = uint64_t{channel.tagBase} << 32 | static_cast<uint32_t>(number);
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  parameters.user_data = &slot;
  parameters.cb.recv = [](void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                          void *user) {
    auto *slot = static_cast<UcxChannel::Slot *>(user);
    slot->done = true;
    slot->status = status;
    slot->bytes = status == UCS_OK ? info->length : 0;
    slot->request = nullptr;
    ucx->ucp_request_free(request);
  };
  ucs_status_ptr_t request =
      ucx->ucp_tag_recv_nbx(worker_, op.landing, op.bytes, tag, UINT64_MAX, &parameters);
  if (UCS_PTR_IS_ERR(request))
    return fail(ucxStatus(UCS_PTR_STATUS(request),
                          absl::StrCat(channel.to->name, ", ", describe(channel), ": receive")));
  slot.request = request;

  // Only now may the sender start: every message is expected, so UCX buffers none.
  Control control;
  control.kind = Control::Credit;
  control.binding = channel.key.binding;
  control.channel = channel.key.channel;
  control.opening = channel.key.opening;
  control.source = rank_;
  control.number = number;
  control.bytes = op.bytes;
  control.tag = tag;
  if (Status status = sendControl(channel, control); !status.ok())
    return fail(status);
  return absl::OkStatus();
}

Status UcxTransport::release(Channel &base, RecvOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<UcxChannel &>(base);
  if (!op.arrived)
    return absl::FailedPreconditionError(
        absl::StrCat(describe(channel), ": release of a receive that has not arrived"));
  op.arrived = false;
  op.view = nullptr;
  --channel.recvsInFlight;
  return absl::OkStatus();
}

bool UcxTransport::collectSends(UcxChannel &channel) {
  bool changed = false;
  for (size_t i = 0; i < channel.startedSends.size();) {
    uint32_t index = channel.startedSends[i];
    UcxChannel::Slot &slot = channel.sends[index];
    if (!slot.done) {
      ++i;
      continue;
    }
    if (slot.status != UCS_OK) {
      note(ucxStatus(slot.status,
                     absl::StrCat(channel.to->name, ", ", describe(channel), ": send")));
      return true;
    }
    slot.send->sent = true;
    slot.send = nullptr;
    --channel.to->pending;
    channel.startedSends[i] = channel.startedSends.back();
    channel.startedSends.pop_back();
    channel.freeSends.push_back(index);
    changed = true;
  }
  return changed;
}

bool UcxTransport::collectRecvs(UcxChannel &channel) {
  bool changed = false;
  while (channel.recvsArrived != channel.recvsPosted) {
    UcxChannel::Slot &slot = channel.recvs[channel.recvsArrived % channel.recvs.size()];
    if (!slot.done)
      break; // Later messages may be complete; they arrive in order all the same.
    if (slot.status != UCS_OK) {
      note(ucxStatus(slot.status,
                     absl::StrCat(channel.to->name, ", ", describe(channel), ": receive")));
      return true;
    }
    if (slot.bytes != slot.recv->bytes) {
      note(sizeMismatch(channel, slot.bytes, slot.recv->bytes));
      return true;
    }
    slot.recv->view = slot.recv->landing;
    slot.recv->arrived = true;
    slot.recv = nullptr;
    --channel.to->pending;
    ++channel.recvsArrived;
    changed = true;
  }
  return changed;
}

StatusOr<bool> UcxTransport::poll() {
  BAGUA_TRY(error_);
  changed_ = false;
  for (uint32_t i = 0; i < kProgressMax && ucx->ucp_worker_progress(worker_) != 0; ++i)
    idleWaits_ = 0;
  bool changed = changed_;
  for (size_t i = 0; i < active_.size();) {
    UcxChannel &channel = *active_[i];
    if (channel.sendsStarted != channel.sendsPosted)
      if (Status status = start(channel); !status.ok())
        return fail(status);
    changed |= collectSends(channel);
    changed |= collectRecvs(channel);
    if (!channel.idle()) {
      ++i;
      continue;
    }
    channel.active = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
  for (UcxPeer &peer : peers_)
    if (peer.failure != UCS_OK && peer.pending > 0)
      return fail(lost(peer));
  if (!noted_.ok())
    return fail(noted_);
  if (changed)
    idleWaits_ = 0;
  return changed;
}

void UcxTransport::abort(const Status &reason) {
  if (!error_.ok())
    return;
  error_ = reason.ok() ? absl::AbortedError("the transport was aborted") : reason;
  if (worker_ == nullptr)
    return;
  // Receives that have no message yet are taken back; closing the endpoints ends the others. After
  // this nothing is progressed any more, so UCX does not touch the operations' memory.
  for (auto &channel : channels_)
    for (uint64_t i = channel->recvsArrived; i != channel->recvsPosted; ++i)
      if (UcxChannel::Slot &slot = channel->recvs[i % channel->recvs.size()];
          !slot.done && slot.request != nullptr)
        ucx->ucp_request_cancel(worker_, slot.request);
  closeEndpoints(true, kAbortTimeout);
}

} // namespace

StatusOr<std::unique_ptr<Transport>> makeUcxTransport(Group &group,
                                                      std::shared_ptr<Doorbell> doorbell) {
  auto transport = std::make_unique<UcxTransport>(group.rank(), group.world(), std::move(doorbell));
  BAGUA_TRY(transport->setUp(group));
  return transport;
}

} // namespace bagua::rt
