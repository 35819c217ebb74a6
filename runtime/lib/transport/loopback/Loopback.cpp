// The in-process transport: slow enough to be obvious, strict enough to catch misuse.
#include "bagua/Loopback.h"

#include "Channel.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <tuple>
#include <vector>

namespace bagua::rt {
namespace {

/// SplitMix64 (Steele, Lea, Flood 2014).
class SplitMix {
public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint32_t upTo(uint32_t max) { return static_cast<uint32_t>(next() % (uint64_t{max} + 1)); }

private:
  uint64_t state_;
};

/// One message slot of a link; `ticket` is its index.
struct Message {
  enum class State : uint8_t { Free, Posted, Received, Done };
  const std::byte *data = nullptr;
  size_t bytes = 0;
  State state = State::Free;
};

/// One direction between two ranks on one key. Fields below the mutex are guarded by it.
struct Link {
  std::mutex mutex;
  bool hasSender = false;
  bool gone = false; ///< The sender has aborted: nothing more will be read from its memory.
  std::vector<Message> messages; ///< sendsMax of them.
  std::vector<uint32_t> order;   ///< Ring of tickets in the order sent.
  uint64_t produced = 0, consumed = 0;
};

struct LinkKey {
  int source, target;
  ChannelKey channel;
  auto operator<=>(const LinkKey &) const = default;
};

class World;

struct LoopbackChannel final : Channel {
  using Channel::Channel;
  std::shared_ptr<Link> outgoing, incoming;
  // Sender's side.
  std::vector<SendOp *> sends;    ///< By ticket.
  std::vector<int64_t> sentDelay; ///< By ticket: polls left before `sent` shows; -1: not drawn.
  uint32_t sendsInFlight = 0;
  // Receiver's side: a ring of receives that have not arrived.
  std::vector<RecvOp *> recvs;
  uint64_t recvsPosted = 0, recvsArrived = 0;
  uint32_t recvsInFlight = 0; ///< Posted and not released.
  int64_t arrivalDelay = -1;
  SplitMix sendRandom{0}, recvRandom{0};
};

class LoopbackTransport final : public Transport {
public:
  LoopbackTransport(std::shared_ptr<World> world, int rank)
      : world_(std::move(world)), rank_(rank) {}
  ~LoopbackTransport() override;

  const char *name() const override { return "loopback"; }
  StatusOr<Memory> allocate(size_t bytes) override;
  bool needsLanding(int peer) const override;
  StatusOr<Channel *> openChannel(uint64_t binding, uint32_t channel, int peer, size_t bytesMax,
                                  uint32_t sendsMax, uint32_t recvsMax) override;
  void closeBinding(uint64_t binding) override;
  Status send(Channel &channel, SendOp &op) override;
  Status recv(Channel &channel, RecvOp &op) override;
  Status release(Channel &channel, RecvOp &op) override;
  StatusOr<bool> poll() override;
  void abort(const Status &reason) override;

private:
  bool pollSends(LoopbackChannel &channel, bool &waiting);
  StatusOr<bool> pollRecvs(LoopbackChannel &channel, bool &waiting);
  void forget(LoopbackChannel &channel);

  std::shared_ptr<World> world_;
  const int rank_;
  Status error_;
  std::vector<std::unique_ptr<LoopbackChannel>> channels_;
  std::map<std::tuple<uint64_t, uint32_t, int>, uint32_t> openings_;
};

class World final : public LoopbackWorld, public std::enable_shared_from_this<World> {
public:
  World(int world, const Options &options) : options(options) {
    for (int rank = 0; rank < world; ++rank)
      doorbells_.push_back(makeDoorbell());
  }
  int world() const override { return static_cast<int>(doorbells_.size()); }
  std::shared_ptr<Doorbell> doorbell(int rank) override {
    return doorbells_.at(static_cast<size_t>(rank));
  }
  std::unique_ptr<Transport> transport(int rank) override {
    BAGUA_CHECK(rank >= 0 && rank < world());
    return std::make_unique<LoopbackTransport>(shared_from_this(), rank);
  }
  void ring(int rank) { doorbells_[static_cast<size_t>(rank)]->ring(); }

  std::shared_ptr<Link> link(const LinkKey &key) {
    std::lock_guard lock(mutex_);
    Entry &entry = links_[key];
    if (!entry.link)
      entry.link = std::make_shared<Link>();
    return entry.link;
  }
  /// The link's entry goes when both ends have closed.
  void closeLink(const LinkKey &key) {
    std::lock_guard lock(mutex_);
    auto found = links_.find(key);
    if (found != links_.end() && ++found->second.closed == 2)
      links_.erase(found);
  }

  const Options options;

private:
  struct Entry {
    std::shared_ptr<Link> link;
    int closed = 0;
  };
  std::vector<std::shared_ptr<Doorbell>> doorbells_;
  std::mutex mutex_;
  std::map<LinkKey, Entry> links_; ///< Guarded by mutex_.
};

LoopbackTransport::~LoopbackTransport() {
  for (auto &channel : channels_)
    forget(*channel);
}

StatusOr<Memory> LoopbackTransport::allocate(size_t bytes) {
  BAGUA_TRY(error_);
  return allocatePrivate(bytes);
}

bool LoopbackTransport::needsLanding(int) const {
  return world_->options.mode == LoopbackWorld::Mode::Copy;
}

StatusOr<Channel *> LoopbackTransport::openChannel(uint64_t binding, uint32_t channel, int peer,
                                                   size_t bytesMax, uint32_t sendsMax,
                                                   uint32_t recvsMax) {
  BAGUA_TRY(error_);
  BAGUA_TRY(checkOpen(rank_, world_->world(), peer));
  ChannelKey key{binding, channel, openings_[{binding, channel, peer}]++};
  auto opened = std::make_unique<LoopbackChannel>(*this, key, peer,
                                                  ChannelLimits{bytesMax, sendsMax, recvsMax});
  opened->outgoing = world_->link({rank_, peer, key});
  opened->incoming = world_->link({peer, rank_, key});
  {
    std::lock_guard lock(opened->outgoing->mutex);
    opened->outgoing->hasSender = true;
    opened->outgoing->messages.resize(sendsMax);
    opened->outgoing->order.resize(sendsMax);
  }
  opened->sends.resize(sendsMax);
  opened->sentDelay.assign(sendsMax, -1);
  opened->recvs.resize(recvsMax);
  // Each end draws from its own stream, so that what one rank sees does not depend on other
  // threads.
  SplitMix random(world_->options.seed);
  for (uint64_t part : {binding, uint64_t{channel}, uint64_t{key.opening},
                        static_cast<uint64_t>(rank_), static_cast<uint64_t>(peer)})
    random = SplitMix(random.next() ^ part);
  opened->sendRandom = SplitMix(random.next());
  opened->recvRandom = SplitMix(random.next());
  channels_.push_back(std::move(opened));
  return channels_.back().get();
}

void LoopbackTransport::closeBinding(uint64_t binding) {
  std::erase_if(channels_, [&](std::unique_ptr<LoopbackChannel> &channel) {
    if (channel->key.binding != binding)
      return false;
    forget(*channel);
    return true;
  });
}

/// Ends this rank's part in both links: peers find no more messages and no memory of ours.
void LoopbackTransport::forget(LoopbackChannel &channel) {
  if (!channel.outgoing)
    return;
  {
    std::lock_guard lock(channel.outgoing->mutex);
    channel.outgoing->gone = true;
  }
  world_->closeLink({rank_, channel.peer, channel.key});
  world_->closeLink({channel.peer, rank_, channel.key});
  channel.outgoing.reset();
  channel.incoming.reset();
}

Status LoopbackTransport::send(Channel &base, SendOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<LoopbackChannel &>(base);
  BAGUA_TRY(checkSend(channel, op, channel.sendsInFlight));
  op.sent = false;
  {
    Link &link = *channel.outgoing;
    std::lock_guard lock(link.mutex);
    auto free = std::find_if(link.messages.begin(), link.messages.end(),
                             [](const Message &m) { return m.state == Message::State::Free; });
    BAGUA_CHECK(free != link.messages.end());
    *free = {op.data, op.bytes, Message::State::Posted};
    auto ticket = static_cast<uint32_t>(free - link.messages.begin());
    link.order[link.produced++ % link.order.size()] = ticket;
    channel.sends[ticket] = &op;
    channel.sentDelay[ticket] = -1;
  }
  ++channel.sendsInFlight;
  world_->ring(channel.peer);
  return absl::OkStatus();
}

Status LoopbackTransport::recv(Channel &base, RecvOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<LoopbackChannel &>(base);
  BAGUA_TRY(checkRecv(channel, op, channel.recvsInFlight, needsLanding(channel.peer)));
  op.arrived = false;
  op.view = nullptr;
  channel.recvs[channel.recvsPosted++ % channel.recvs.size()] = &op;
  ++channel.recvsInFlight;
  return absl::OkStatus();
}

Status LoopbackTransport::release(Channel &base, RecvOp &op) {
  BAGUA_TRY(error_);
  auto &channel = static_cast<LoopbackChannel &>(base);
  if (!op.arrived)
    return absl::FailedPreconditionError(
        absl::StrCat(describe(channel), ": release of a receive that has not arrived"));
  op.arrived = false;
  op.view = nullptr;
  --channel.recvsInFlight;
  if (world_->options.mode == LoopbackWorld::Mode::Copy) {
    if (world_->options.poisonReleased)
      std::memset(op.landing, 0xfb, op.bytes);
    return absl::OkStatus();
  }
  {
    std::lock_guard lock(channel.incoming->mutex);
    channel.incoming->messages[op.transportState[0]].state = Message::State::Done;
  }
  world_->ring(channel.peer);
  return absl::OkStatus();
}

bool LoopbackTransport::pollSends(LoopbackChannel &channel, bool &waiting) {
  if (channel.sendsInFlight == 0)
    return false;
  bool changed = false;
  std::lock_guard lock(channel.outgoing->mutex);
  for (size_t ticket = 0; ticket < channel.sends.size(); ++ticket) {
    Message &message = channel.outgoing->messages[ticket];
    if (message.state != Message::State::Done)
      continue;
    int64_t &delay = channel.sentDelay[ticket];
    if (delay < 0)
      delay = channel.sendRandom.upTo(world_->options.delayPollsMax);
    if (delay-- > 0) {
      waiting = true;
      continue;
    }
    channel.sends[ticket]->sent = true;
    message.state = Message::State::Free;
    --channel.sendsInFlight;
    changed = true;
  }
  return changed;
}

StatusOr<bool> LoopbackTransport::pollRecvs(LoopbackChannel &channel, bool &waiting) {
  bool changed = false, copied = false;
  while (channel.recvsArrived != channel.recvsPosted) {
    RecvOp &op = *channel.recvs[channel.recvsArrived % channel.recvs.size()];
    Link &link = *channel.incoming;
    std::lock_guard lock(link.mutex);
    if (link.gone || link.consumed == link.produced)
      break;
    if (channel.arrivalDelay < 0)
      channel.arrivalDelay = channel.recvRandom.upTo(world_->options.delayPollsMax);
    if (channel.arrivalDelay-- > 0) {
      waiting = true;
      break;
    }
    uint32_t ticket = link.order[link.consumed++ % link.order.size()];
    Message &message = link.messages[ticket];
    if (message.bytes != op.bytes)
      return sizeMismatch(channel, message.bytes, op.bytes);
    if (world_->options.mode == LoopbackWorld::Mode::Copy) {
      std::memcpy(op.landing, message.data, op.bytes);
      op.view = op.landing;
      message.state = Message::State::Done;
      copied = true;
    } else {
      op.view = message.data;
      op.transportState[0] = ticket;
      message.state = Message::State::Received;
    }
    op.arrived = true;
    ++channel.recvsArrived;
    changed = true;
  }
  if (copied)
    world_->ring(channel.peer);
  return changed;
}

StatusOr<bool> LoopbackTransport::poll() {
  BAGUA_TRY(error_);
  bool changed = false, waiting = false;
  for (auto &channel : channels_) {
    changed |= pollSends(*channel, waiting);
    StatusOr<bool> received = pollRecvs(*channel, waiting);
    if (!received.ok()) {
      abort(received.status());
      return error_;
    }
    changed |= *received;
  }
  if (waiting) // Delays count polls, so a driver must not sleep on them.
    world_->ring(rank_);
  return changed;
}

void LoopbackTransport::abort(const Status &reason) {
  if (!error_.ok())
    return;
  error_ = reason.ok() ? absl::AbortedError("the transport was aborted") : reason;
  for (auto &channel : channels_) {
    std::lock_guard lock(channel->outgoing->mutex);
    channel->outgoing->gone = true;
    channel->sendsInFlight = channel->recvsInFlight = 0;
    channel->recvsArrived = channel->recvsPosted;
  }
}

} // namespace

std::shared_ptr<LoopbackWorld> LoopbackWorld::create(int world, const Options &options) {
  BAGUA_CHECK(world > 0);
  return std::make_shared<World>(world, options);
}

std::shared_ptr<LoopbackWorld> LoopbackWorld::create(int world) { return create(world, Options{}); }

} // namespace bagua::rt
