// Messages inside a host: descriptors in shared rings, payload read where it lies.
#include "bagua/Window.h"

#include "Channel.h"
#include "Doorbell.h"
#include "Exchange.h"
#include "Layout.h"
#include "Window.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace bagua::rt {
namespace {

constexpr size_t kControlBytes = size_t{256} << 20;
constexpr size_t kWindowBytesMin = size_t{1} << 30;
constexpr size_t kAllWindowsBytesMax = size_t{32}
                                       << 40; ///< Of a host's ranks, mapped by each of them.

/// What this rank sees of a peer on its host.
struct Neighbour {
  std::shared_ptr<Mapping> control, data;
  std::shared_ptr<void> doorbellOwner;
  std::atomic<uint32_t> *doorbell = nullptr;
  explicit operator bool() const { return doorbell != nullptr; }
};

/// The windows of this process's own ranks by token, so that ranks that are threads use one
/// mapping.
class LocalNeighbours {
public:
  static LocalNeighbours &instance() {
    static LocalNeighbours *neighbours = new LocalNeighbours; // Outlives every transport.
    return *neighbours;
  }
  void add(const Token &token, const Neighbour &neighbour) {
    std::lock_guard lock(mutex_);
    byToken_[token] = neighbour;
  }
  void remove(const Token &token) {
    std::lock_guard lock(mutex_);
    byToken_.erase(token);
  }
  Neighbour find(const Token &token) {
    std::lock_guard lock(mutex_);
    auto found = byToken_.find(token);
    return found == byToken_.end() ? Neighbour{} : found->second;
  }

private:
  std::mutex mutex_;
  std::map<Token, Neighbour> byToken_; ///< Guarded by mutex_.
};

struct WindowChannel final : Channel {
  using Channel::Channel;

  // Sender's side: a ring in our own control window.
  Ring outgoing;
  size_t outgoingOffset = 0;
  size_t directorySlot = 0;
  uint64_t sentCount = 0;
  struct Send {
    SendOp *op = nullptr;
    uint64_t number = 0; ///< Message number.
    Memory staging;      ///< Made at the first send from foreign memory that drew this ticket.
  };
  std::vector<Send> sends;           ///< By ticket.
  std::vector<uint32_t> freeTickets; ///< A stack: staging stays in few tickets.
  std::vector<uint32_t> busyTickets;
  bool inSendList = false;

  // Receiver's side: a ring in the peer's control window.
  Ring incoming; ///< Set once the peer's directory shows it.
  uint64_t directoryVersionSeen = UINT64_MAX;
  uint64_t takenCount = 0;
  std::vector<RecvOp *> recvs; ///< A ring of receives that have not arrived.
  uint64_t recvsPosted = 0;
  uint32_t recvsInFlight = 0; ///< Posted and not released.
  bool inRecvList = false;
};

class WindowTransport final : public Transport {
public:
  static StatusOr<std::unique_ptr<Transport>>
  create(Group &group, std::shared_ptr<Doorbell> doorbell, const WindowOptions &options);
  ~WindowTransport() override;

  const char *name() const override { return "window"; }
  StatusOr<Memory> allocate(size_t bytes) override {
    BAGUA_TRY(error_);
    return data_->allocate(bytes);
  }
  bool needsLanding(int) const override { return false; }
  StatusOr<Channel *> openChannel(uint64_t binding, uint32_t channel, int peer, size_t bytesMax,
                                  uint32_t sendsMax, uint32_t recvsMax) override;
  void closeBinding(uint64_t binding) override;
  Status send(Channel &channel, SendOp &op) override;
  Status recv(Channel &channel, RecvOp &op) override;
  Status release(Channel &channel, RecvOp &op) override;
  StatusOr<bool> poll() override;
  void abort(const Status &reason) override;

private:
  /// A ring whose receiver has not closed yet.
  struct ClosingRing {
    Ring ring;
    size_t offset, directorySlot;
  };
  /// A receiving end that was closed before the sender's ring showed.
  struct ClosedEarly {
    int peer;
    ChannelKey key;
    uint64_t directoryVersionSeen;
  };

  WindowTransport(int rank, int world)
      : rank_(rank), pid_(getpid()), neighbours_(static_cast<size_t>(world)) {}
  Status setUp(Group &group, std::shared_ptr<Doorbell> doorbell, const WindowOptions &options);
  Status makeWindows(const WindowOptions &options, int localSize);
  StatusOr<Neighbour> mapNeighbour(const WindowExchange::Peer &peer);
  ControlHeader &header() { return *reinterpret_cast<ControlHeader *>(control_->data()); }
  static DirectorySlot *directory(std::byte *control) {
    return reinterpret_cast<DirectorySlot *>(control + kDirectoryOffset);
  }
  size_t directoryCapacity(size_t controlBytes) const {
    return (controlBytes / 16 - kDirectoryOffset) / sizeof(DirectorySlot);
  }

  StatusOr<size_t> publish(const WindowChannel &channel);
  void withdraw(size_t slot);
  StatusOr<Ring> findRing(int peer, const ChannelKey &key, uint64_t &versionSeen);
  StatusOr<bool> connect(WindowChannel &channel);
  void collect();
  void closeChannel(WindowChannel &channel);
  Status stage(WindowChannel &channel, WindowChannel::Send &send, const SendOp &op,
               const std::byte *&data);
  bool pollSends(WindowChannel &channel);
  StatusOr<bool> pollRecvs(WindowChannel &channel);
  Status fail(Status reason) {
    abort(reason);
    return error_;
  }
  void ring(int peer) {
    DoorbellWord::ring(*neighbours_[static_cast<size_t>(peer)].doorbell, true);
  }

  const int rank_;
  const pid_t pid_;
  Token token_;
  Status error_;
  std::shared_ptr<FutexDoorbell> doorbell_;
  std::shared_ptr<Window> control_, data_;
  std::vector<Neighbour> neighbours_; ///< By rank; empty for this rank and ranks elsewhere.
  std::vector<size_t> slotHints_;     ///< By rank: where its directory is likely to go on.
  std::vector<std::string> hosts_;    ///< By rank, for messages.

  std::vector<std::unique_ptr<WindowChannel>> channels_;
  std::map<std::tuple<uint64_t, uint32_t, int>, uint32_t> openings_;
  std::vector<size_t> freeSlots_; ///< Of our directory.
  std::vector<ClosingRing> closingRings_;
  std::vector<ClosedEarly> closedEarly_;
  // Channels with something to poll for; capacity for all of them is reserved by openChannel().
  std::vector<WindowChannel *> sendList_, recvList_;
};

StatusOr<std::unique_ptr<Transport>> WindowTransport::create(Group &group,
                                                             std::shared_ptr<Doorbell> doorbell,
                                                             const WindowOptions &options) {
  std::unique_ptr<WindowTransport> transport(new WindowTransport(group.rank(), group.world()));
  BAGUA_TRY(transport->setUp(group, std::move(doorbell), options));
  return transport;
}

Status WindowTransport::makeWindows(const WindowOptions &options, int localSize) {
  BAGUA_ASSIGN(token_, Token::random());
  size_t controlBytes = options.controlBytes ? options.controlBytes : kControlBytes;
  BAGUA_ASSIGN(control_, Window::create("bagua-control", controlBytes));
  size_t directoryBytes =
      kDirectoryOffset + directoryCapacity(control_->bytes()) * sizeof(DirectorySlot);
  BAGUA_ASSIGN(size_t directoryOffset, control_->reserve(directoryBytes));
  BAGUA_CHECK(directoryOffset == 0);
  BAGUA_TRY(commitSharedFile(control_->descriptor(), 0, kDirectoryOffset, "a control window"));

  size_t dataBytes = options.windowBytes;
  if (dataBytes == 0) {
    size_t memoryBytes =
        static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    dataBytes = std::clamp(4 * memoryBytes, kWindowBytesMin,
                           kAllWindowsBytesMax / static_cast<size_t>(std::max(localSize, 1)));
  }
  StatusOr<std::shared_ptr<Window>> data = Window::create("bagua-data", dataBytes);
  // Where address space is limited (ulimit -v), take what there is.
  while (!data.ok() && options.windowBytes == 0 && dataBytes > kWindowBytesMin)
    data = Window::create("bagua-data", dataBytes = std::max(dataBytes / 2, kWindowBytesMin));
  BAGUA_ASSIGN(data_, std::move(data));
  header().magic.store(kWindowMagic, std::memory_order_release);
  return absl::OkStatus();
}

Status WindowTransport::setUp(Group &group, std::shared_ptr<Doorbell> doorbell,
                              const WindowOptions &options) {
  doorbell_ = std::dynamic_pointer_cast<FutexDoorbell>(doorbell);
  if (!doorbell_ || doorbell_->descriptor() < 0)
    return absl::InvalidArgumentError(
        "the window transport needs a doorbell from makeSharedDoorbell()");
  const PeerInfo &self = group.peer(rank_);
  int localSize = 0;
  for (int r = 0; r < group.world(); ++r) {
    const PeerInfo &peer = group.peer(r);
    hosts_.push_back(peer.host);
    if (peer.hostKey == self.hostKey)
      ++localSize;
    else if (!options.localPeersOnly)
      return absl::InvalidArgumentError(absl::StrCat(
          "the window transport needs all ranks on one host: rank ", rank_, " is on host \"",
          self.host, "\", rank ", r, " on host \"", peer.host, "\""));
  }
  slotHints_.resize(static_cast<size_t>(group.world()));

  // A failure here must not leave the others waiting, so it is exchanged like an address.
  Status made = makeWindows(options, localSize);
  std::unique_ptr<WindowExchange> exchange;
  if (made.ok()) {
    StatusOr<std::unique_ptr<WindowExchange>> created = WindowExchange::create(rank_, token_);
    if (created.ok())
      exchange = *std::move(created);
    else
      made = created.status();
  }
  if (made.ok())
    LocalNeighbours::instance().add(token_, Neighbour{control_->mapping(), data_->mapping(),
                                                      doorbell_->owner(), &doorbell_->word()});
  BAGUA_ASSIGN(int64_t attempt,
               group.store().add(absl::StrCat("transport/window/attempts/", rank_), 1));
  std::string prefix = absl::StrCat("transport/window/", attempt, "/");
  BAGUA_ASSIGN(std::vector<std::string> answers,
               group.allGather(prefix + "address",
                               made.ok()
                                   ? absl::StrCat("ok ", exchange->address(), " ", token_.hex())
                                   : absl::StrCat("error ", made.ToString())));
  BAGUA_TRY(made);
  std::vector<WindowExchange::Peer> peers;
  for (int r = 0; r < group.world(); ++r) {
    const std::string &answer = answers[static_cast<size_t>(r)];
    std::vector<std::string> words = absl::StrSplit(answer, absl::MaxSplits(' ', 2));
    if (words.size() != 3 || words[0] != "ok")
      return absl::UnavailableError(absl::StrCat("rank ", r, " has no window transport: ", answer));
    if (r == rank_ || group.peer(r).hostKey != self.hostKey)
      continue;
    BAGUA_ASSIGN(Token token, Token::fromHex(words[2]));
    Neighbour local =
        options.shareMappingsInProcess ? LocalNeighbours::instance().find(token) : Neighbour{};
    if (local)
      neighbours_[static_cast<size_t>(r)] = std::move(local);
    else
      peers.push_back({r, token, words[1], {}});
  }

  Status mapped = exchange->run(
      group, {doorbell_->descriptor(), control_->descriptor(), data_->descriptor()}, peers);
  exchange.reset();
  for (const WindowExchange::Peer &peer : peers) {
    if (!mapped.ok())
      break;
    StatusOr<Neighbour> neighbour = mapNeighbour(peer);
    if (neighbour.ok())
      neighbours_[static_cast<size_t>(peer.rank)] = *std::move(neighbour);
    else
      mapped = neighbour.status();
  }
  BAGUA_ASSIGN(answers, group.allGather(prefix + "ready", mapped.ok() ? "ok" : mapped.ToString()));
  BAGUA_TRY(mapped);
  for (int r = 0; r < group.world(); ++r)
    if (answers[static_cast<size_t>(r)] != "ok")
      return absl::UnavailableError(absl::StrCat(
          "rank ", r, " cannot use the window transport: ", answers[static_cast<size_t>(r)]));
  return absl::OkStatus();
}

StatusOr<Neighbour> WindowTransport::mapNeighbour(const WindowExchange::Peer &peer) {
  size_t bytes[kFileCount];
  for (size_t i = 0; i < kFileCount; ++i) {
    struct stat status{};
    int seals = fcntl(peer.files[i].get(), F_GET_SEALS);
    if (fstat(peer.files[i].get(), &status) != 0 || seals < 0 || !(seals & F_SEAL_SHRINK))
      return absl::InternalError(
          absl::StrCat("rank ", peer.rank, " passed a window that could shrink"));
    bytes[i] = static_cast<size_t>(status.st_size);
    if (bytes[i] == 0 || bytes[i] % kPageBytes != 0)
      return absl::InternalError(
          absl::StrCat("rank ", peer.rank, " passed a window of ", bytes[i], " bytes"));
  }
  auto context = [&](const Status &status) {
    return Status(status.code(),
                  absl::StrCat("window of rank ", peer.rank, ": ", status.message()));
  };
  Neighbour neighbour;
  StatusOr<std::shared_ptr<Mapping>> bell =
      Mapping::map(peer.files[kDoorbellFile].get(), kPageBytes, true);
  if (!bell.ok())
    return context(bell.status());
  StatusOr<std::shared_ptr<Mapping>> control =
      Mapping::map(peer.files[kControlFile].get(), bytes[kControlFile], true);
  if (!control.ok())
    return context(control.status());
  StatusOr<std::shared_ptr<Mapping>> data =
      Mapping::map(peer.files[kDataFile].get(), bytes[kDataFile], false);
  if (!data.ok())
    return context(data.status());
  (*data)->hideFromChildren();
  (*control)->hideFromChildren();
  neighbour.doorbell = reinterpret_cast<std::atomic<uint32_t> *>((*bell)->data());
  neighbour.doorbellOwner = *std::move(bell);
  neighbour.control = *std::move(control);
  neighbour.data = *std::move(data);
  auto *header = reinterpret_cast<ControlHeader *>(neighbour.control->data());
  if (bytes[kControlFile] < 32 * kDirectoryOffset ||
      header->magic.load(std::memory_order_acquire) != kWindowMagic)
    return absl::InternalError(
        absl::StrCat("rank ", peer.rank, " passed a control window of another version"));
  return neighbour;
}

WindowTransport::~WindowTransport() {
  if (pid_ != getpid())
    return; // A forked child must not close what its parent uses, and the lock may be held for
            // ever.
  LocalNeighbours::instance().remove(token_);
  for (auto &channel : channels_)
    closeChannel(*channel);
}

/// Writes a directory slot for the channel's outgoing ring.
StatusOr<size_t> WindowTransport::publish(const WindowChannel &channel) {
  size_t slot;
  if (!freeSlots_.empty()) {
    slot = freeSlots_.back();
    freeSlots_.pop_back();
  } else {
    slot = header().directoryCount.load(std::memory_order_relaxed);
    if (slot >= directoryCapacity(control_->bytes()))
      return absl::ResourceExhaustedError(absl::StrCat(
          "this rank has ", slot, " channels open, as many as its control window has room for"));
    size_t begin = (kDirectoryOffset + slot * sizeof(DirectorySlot)) / kPageBytes * kPageBytes;
    BAGUA_TRY(commitSharedFile(control_->descriptor(), begin, kPageBytes, "a channel directory"));
    header().directoryCount.store(slot + 1, std::memory_order_release);
  }
  DirectorySlot &entry = directory(control_->data())[slot];
  entry.binding.store(channel.key.binding, std::memory_order_relaxed);
  entry.channelAndOpening.store(uint64_t{channel.key.channel} << 32 | channel.key.opening,
                                std::memory_order_relaxed);
  entry.targetAndCapacity.store(uint64_t{static_cast<uint32_t>(channel.peer)} << 32 |
                                    channel.outgoing.capacity,
                                std::memory_order_relaxed);
  entry.ringOffset.store(channel.outgoingOffset, std::memory_order_relaxed);
  entry.state.fetch_add(1, std::memory_order_release);
  header().version.fetch_add(1, std::memory_order_release);
  return slot;
}

void WindowTransport::withdraw(size_t slot) {
  directory(control_->data())[slot].state.fetch_add(1, std::memory_order_release);
  // Whoever reads fields written after this sees the state changed.
  std::atomic_thread_fence(std::memory_order_release);
  freeSlots_.push_back(slot);
}

/// The ring of `key` from `peer` to us, or an empty one if its directory does not show it (yet).
StatusOr<Ring> WindowTransport::findRing(int peer, const ChannelKey &key, uint64_t &versionSeen) {
  const Neighbour &neighbour = neighbours_[static_cast<size_t>(peer)];
  auto &header = *reinterpret_cast<ControlHeader *>(neighbour.control->data());
  uint64_t version = header.version.load(std::memory_order_acquire);
  if (version == versionSeen)
    return Ring();
  versionSeen = version;
  size_t count = std::min<size_t>(header.directoryCount.load(std::memory_order_acquire),
                                  directoryCapacity(neighbour.control->bytes()));
  size_t &hint = slotHints_[static_cast<size_t>(peer)];
  for (size_t i = 0; i < count; ++i) {
    size_t slot = hint + i < count ? hint + i : hint + i - count;
    DirectorySlot &entry = directory(neighbour.control->data())[slot];
    uint64_t state = entry.state.load(std::memory_order_acquire);
    if (!(state & DirectorySlot::kOpenBit))
      continue;
    uint64_t binding = entry.binding.load(std::memory_order_relaxed);
    uint64_t channelAndOpening = entry.channelAndOpening.load(std::memory_order_relaxed);
    uint64_t targetAndCapacity = entry.targetAndCapacity.load(std::memory_order_relaxed);
    uint64_t offset = entry.ringOffset.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.state.load(std::memory_order_relaxed) != state)
      continue; // Being rewritten; the version will tell.
    if (binding != key.binding ||
        channelAndOpening != (uint64_t{key.channel} << 32 | key.opening) ||
        static_cast<int>(targetAndCapacity >> 32) != rank_)
      continue;
    auto capacity = static_cast<uint32_t>(targetAndCapacity);
    size_t bytes = neighbour.control->bytes();
    if (capacity == 0 || capacity > kRingCapacityMax || offset % 64 != 0 || offset > bytes ||
        ringBytes(capacity) > bytes - offset)
      return absl::InternalError(absl::StrCat("rank ", peer, " shows a ring of ", capacity,
                                              " descriptors at offset ", offset,
                                              ", outside its control window of ", bytes, " bytes"));
    hint = slot + 1;
    return Ring(neighbour.control->data() + offset, capacity);
  }
  return Ring();
}

StatusOr<bool> WindowTransport::connect(WindowChannel &channel) {
  if (!channel.incoming) {
    BAGUA_ASSIGN(channel.incoming,
                 findRing(channel.peer, channel.key, channel.directoryVersionSeen));
  }
  return static_cast<bool>(channel.incoming);
}

/// Frees rings whose receivers have closed, and closes rings that showed after we had.
void WindowTransport::collect() {
  std::erase_if(closingRings_, [&](ClosingRing &closing) {
    if (closing.ring.header->closed.load(std::memory_order_acquire) == 0)
      return false;
    withdraw(closing.directorySlot);
    control_->freeControl(closing.offset, ringBytes(closing.ring.capacity));
    return true;
  });
  std::erase_if(closedEarly_, [&](ClosedEarly &closed) {
    StatusOr<Ring> ring = findRing(closed.peer, closed.key, closed.directoryVersionSeen);
    if (!ring.ok() || !*ring)
      return !ring.ok();
    ring->header->closed.store(1, std::memory_order_release);
    return true;
  });
}

StatusOr<Channel *> WindowTransport::openChannel(uint64_t binding, uint32_t channel, int peer,
                                                 size_t bytesMax, uint32_t sendsMax,
                                                 uint32_t recvsMax) {
  BAGUA_TRY(error_);
  BAGUA_TRY(checkOpen(rank_, static_cast<int>(neighbours_.size()), peer));
  if (!neighbours_[static_cast<size_t>(peer)])
    return absl::InvalidArgumentError(absl::StrCat("the window transport does not reach rank ",
                                                   peer, " on host \"",
                                                   hosts_[static_cast<size_t>(peer)], "\""));
  if (sendsMax > kRingCapacityMax || recvsMax > kRingCapacityMax)
    return absl::InvalidArgumentError(absl::StrCat("a channel for ", std::max(sendsMax, recvsMax),
                                                   " operations in flight, at most ",
                                                   kRingCapacityMax, " are possible"));
  collect();
  // A key that fails to open counts as opened: the peer's side may not fail.
  ChannelKey key{binding, channel, openings_[{binding, channel, peer}]++};
  auto opened = std::make_unique<WindowChannel>(*this, key, peer,
                                                ChannelLimits{bytesMax, sendsMax, recvsMax});
  uint32_t capacity = std::max(sendsMax, 1u);
  BAGUA_ASSIGN(opened->outgoingOffset, control_->allocateControl(ringBytes(capacity)));
  opened->outgoing = Ring(control_->data() + opened->outgoingOffset, capacity);
  // The range may have been a ring before: its words start at zero again, before anyone is told.
  opened->outgoing.header->closed.store(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < capacity; ++i) {
    opened->outgoing.released[i].store(0, std::memory_order_relaxed);
    opened->outgoing.descriptors[i].sequence.store(0, std::memory_order_relaxed);
  }
  opened->sends.resize(capacity);
  for (uint32_t i = capacity; i-- > 0;)
    opened->freeTickets.push_back(i);
  opened->busyTickets.reserve(capacity);
  opened->recvs.resize(std::max(recvsMax, 1u));
  StatusOr<size_t> slot = publish(*opened);
  if (!slot.ok()) {
    control_->freeControl(opened->outgoingOffset, ringBytes(capacity));
    return slot.status();
  }
  opened->directorySlot = *slot;
  channels_.push_back(std::move(opened));
  sendList_.reserve(channels_.size());
  recvList_.reserve(channels_.size());
  WindowChannel &result = *channels_.back();
  StatusOr<bool> connected = connect(result);
  if (!connected.ok())
    return fail(connected.status());
  // The peer may sleep on a receive from us.
  ring(peer);
  return &result;
}

void WindowTransport::closeBinding(uint64_t binding) {
  auto gone = [&](const auto &channel) { return channel->key.binding == binding; };
  std::erase_if(sendList_, gone);
  std::erase_if(recvList_, gone);
  std::erase_if(channels_, [&](std::unique_ptr<WindowChannel> &channel) {
    if (!gone(channel))
      return false;
    closeChannel(*channel);
    return true;
  });
  collect();
}

void WindowTransport::closeChannel(WindowChannel &channel) {
  closingRings_.push_back({channel.outgoing, channel.outgoingOffset, channel.directorySlot});
  StatusOr<bool> connected = connect(channel);
  if (!connected.ok())
    return;
  if (*connected)
    channel.incoming.header->closed.store(1, std::memory_order_release);
  else
    closedEarly_.push_back({channel.peer, channel.key, channel.directoryVersionSeen});
}

/// Copies a message from memory that peers cannot see. The first use of a ticket allocates.
Status WindowTransport::stage(WindowChannel &channel, WindowChannel::Send &send, const SendOp &op,
                              const std::byte *&data) {
  if (send.staging.bytes.empty()) {
    StatusOr<Memory> staging = data_->allocate(channel.limits.bytesMax);
    if (!staging.ok())
      return Status(staging.status().code(),
                    absl::StrCat(describe(channel), ": staging for sends from private memory: ",
                                 staging.status().message()));
    send.staging = *std::move(staging);
  }
  std::memcpy(send.staging.bytes.data(), op.data, op.bytes);
  data = send.staging.bytes.data();
  return absl::OkStatus();
}

Status WindowTransport::send(Channel &base, SendOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<WindowChannel &>(base);
  BAGUA_TRY(checkSend(channel, op, static_cast<uint32_t>(channel.busyTickets.size())));
  uint32_t ticket = channel.freeTickets.back();
  WindowChannel::Send &send = channel.sends[ticket];
  const std::byte *data = op.data;
  if (!data_->contains(op.data, op.bytes))
    BAGUA_TRY(stage(channel, send, op, data));
  channel.freeTickets.pop_back();
  channel.busyTickets.push_back(ticket);
  op.sent = false;
  send.op = &op;
  send.number = channel.sentCount++;
  // This descriptor was last used for message number - capacity. Fewer than capacity messages are
  // unreleased and receivers take in order, so that one was taken before one whose release we saw.
  Descriptor &descriptor = channel.outgoing.descriptors[send.number % channel.outgoing.capacity];
  descriptor.offset.store(static_cast<uint64_t>(data - data_->data()), std::memory_order_relaxed);
  descriptor.bytes.store(op.bytes, std::memory_order_relaxed);
  descriptor.ticket.store(ticket, std::memory_order_relaxed);
  descriptor.sequence.store(send.number + 1, std::memory_order_release);
  if (!channel.inSendList) {
    channel.inSendList = true;
    sendList_.push_back(&channel);
  }
  ring(channel.peer);
  return absl::OkStatus();
}

Status WindowTransport::recv(Channel &base, RecvOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<WindowChannel &>(base);
  BAGUA_TRY(checkRecv(channel, op, channel.recvsInFlight, false));
  op.arrived = false;
  op.view = nullptr;
  channel.recvs[channel.recvsPosted++ % channel.recvs.size()] = &op;
  ++channel.recvsInFlight;
  if (!channel.inRecvList) {
    channel.inRecvList = true;
    recvList_.push_back(&channel);
  }
  return absl::OkStatus();
}

Status WindowTransport::release(Channel &base, RecvOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<WindowChannel &>(base);
  if (!op.arrived)
    return absl::FailedPreconditionError(
        absl::StrCat(describe(channel), ": release of a receive that has not arrived"));
  op.arrived = false;
  op.view = nullptr;
  --channel.recvsInFlight;
  channel.incoming.released[op.transportState[0]].store(op.transportState[1] + 1,
                                                        std::memory_order_release);
  ring(channel.peer);
  return absl::OkStatus();
}

bool WindowTransport::pollSends(WindowChannel &channel) {
  bool changed = false;
  for (size_t i = 0; i < channel.busyTickets.size();) {
    uint32_t ticket = channel.busyTickets[i];
    WindowChannel::Send &send = channel.sends[ticket];
    if (channel.outgoing.released[ticket].load(std::memory_order_acquire) != send.number + 1) {
      ++i;
      continue;
    }
    send.op->sent = true;
    send.op = nullptr;
    channel.busyTickets[i] = channel.busyTickets.back();
    channel.busyTickets.pop_back();
    channel.freeTickets.push_back(ticket);
    changed = true;
  }
  return changed;
}

StatusOr<bool> WindowTransport::pollRecvs(WindowChannel &channel) {
  if (!channel.incoming) {
    BAGUA_ASSIGN(bool connected, connect(channel));
    if (!connected)
      return false;
  }
  bool changed = false;
  while (channel.takenCount != channel.recvsPosted) {
    Descriptor &descriptor =
        channel.incoming.descriptors[channel.takenCount % channel.incoming.capacity];
    if (descriptor.sequence.load(std::memory_order_acquire) != channel.takenCount + 1)
      break;
    uint64_t offset = descriptor.offset.load(std::memory_order_relaxed);
    uint64_t bytes = descriptor.bytes.load(std::memory_order_relaxed);
    uint64_t ticket = descriptor.ticket.load(std::memory_order_relaxed);
    RecvOp &op = *channel.recvs[channel.takenCount % channel.recvs.size()];
    if (bytes != op.bytes)
      return sizeMismatch(channel, bytes, op.bytes);
    const Mapping &data = *neighbours_[static_cast<size_t>(channel.peer)].data;
    if (ticket >= channel.incoming.capacity || offset > data.bytes() ||
        bytes > data.bytes() - offset)
      return absl::InternalError(absl::StrCat(
          describe(channel), ": a descriptor of ", bytes, " bytes at offset ", offset,
          " with ticket ", ticket, " does not fit a window of ", data.bytes(), " bytes and ",
          channel.incoming.capacity, " tickets: the peer's control memory is damaged"));
    op.view = data.data() + offset;
    op.transportState[0] = ticket;
    op.transportState[1] = channel.takenCount++;
    op.arrived = true;
    changed = true;
  }
  return changed;
}

StatusOr<bool> WindowTransport::poll() {
  BAGUA_TRY(error_);
  bool changed = false;
  for (size_t i = 0; i < sendList_.size();) {
    WindowChannel &channel = *sendList_[i];
    changed |= pollSends(channel);
    if (!channel.busyTickets.empty()) {
      ++i;
      continue;
    }
    channel.inSendList = false;
    sendList_[i] = sendList_.back();
    sendList_.pop_back();
  }
  for (size_t i = 0; i < recvList_.size();) {
    WindowChannel &channel = *recvList_[i];
    StatusOr<bool> received = pollRecvs(channel);
    if (!received.ok())
      return fail(received.status());
    changed |= *received;
    if (channel.takenCount != channel.recvsPosted) {
      ++i;
      continue;
    }
    channel.inRecvList = false;
    recvList_[i] = recvList_.back();
    recvList_.pop_back();
  }
  return changed;
}

void WindowTransport::abort(const Status &reason) {
  if (!error_.ok())
    return;
  error_ = reason.ok() ? absl::AbortedError("the transport was aborted") : reason;
  sendList_.clear();
  recvList_.clear();
}

} // namespace

StatusOr<std::unique_ptr<Transport>> makeWindowTransport(Group &group,
                                                         std::shared_ptr<Doorbell> doorbell,
                                                         const WindowOptions &options) {
  return WindowTransport::create(group, std::move(doorbell), options);
}

} // namespace bagua::rt
