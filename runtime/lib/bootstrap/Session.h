// One generation of a group: who has joined, what each rank does, what is stored, and the verdict.
#pragma once

#include "Phase.h"
#include "bagua/Group.h"

#include <map>
#include <optional>

namespace bagua::rt {

/// Keys and values, with limits that no honest group meets.
class Table {
public:
  static constexpr size_t kKeyBytesMax = 4096;
  static constexpr size_t kValueBytesMax = size_t{16} << 20;
  static constexpr size_t kTotalBytesMax = size_t{1} << 30;

  Status set(std::string_view key, std::string_view value);
  StatusOr<int64_t> add(std::string_view key, int64_t delta);
  void erase(std::string_view prefix);
  /// Counters read as decimal text.
  const std::string *find(std::string_view key) const;

private:
  struct Entry {
    std::string value;
    std::optional<int64_t> count;
  };
  std::map<std::string, Entry, std::less<>> entries_;
  size_t bytes_ = 0;
};

/// A collective exchange in progress. Waiters keep it alive; it is complete when `arrived ==
/// values.size()`.
struct Gather {
  std::vector<std::optional<std::string>> values;
  size_t arrived = 0;
  double elapsed = 0.0; ///< Unpaused seconds since the first rank arrived.
  bool warned = false;
  bool complete() const { return arrived == values.size(); }
};

/// Decides; knows no clock, thread or socket. Time comes in through tick(), so a stalled process
/// loses no more than one tick of everyone's patience. Not thread-safe.
class Session {
public:
  struct Limits {
    double stepTimeout = 300.0, bootstrapTimeout = 300.0, warnFrozen = 2.0, warnWaiting = 10.0;
  };
  struct Member {
    PeerInfo info;
    Limits limits;
    bool joined = false, left = false, dead = false;
    Activity activity;
    double sinceJoin = 0.0;
    double silence = 0.0; ///< Since the last heartbeat.
    double waited = 0.0;  ///< Unpaused, without a change of phase.
    bool warnedFrozen = false, warnedWaiting = false;
    int pauses = 0;
  };

  Session(int world, std::string job);

  int world() const { return static_cast<int>(members_.size()); }
  const std::string &job() const { return job_; }
  Table &table() { return table_; }

  /// Refuses a rank out of range, one that has already joined, and another world.
  Status join(int world, const PeerInfo &info, const Limits &limits);
  bool complete() const { return joined_ == world(); }
  /// Everyone who joined has left or died: the next join belongs to another session.
  bool over() const { return joined_ > 0 && gone_ == joined_; }
  /// Numbers nodes by host key and fills local ranks that nobody gave. Once complete(). An error if
  /// the ranks of a host contradict each other about their places.
  Status settle();
  const Member &member(int rank) const { return members_[rank]; }
  /// Remembered for the message about ranks that did not arrive.
  void noteRefusal(std::string text);

  void heartbeat(int rank, Activity activity);
  void pause(int rank, int delta);
  int pauses() const { return pauses_; }
  void leave(int rank);
  int departures() const { return departures_; }
  /// See Group::departure().
  std::string departure(int rank) const;
  /// The process of `rank` is gone without a goodbye.
  void dead(int rank, std::string_view how);
  /// The process of `rank` is gone; unless it has joined, nobody need wait for it.
  void neverJoins(int rank, std::string_view how);
  /// The rank whose end caused the verdict, or -1.
  int culprit() const { return culprit_; }

  /// Adds one rank's value; the gather is complete with the last. Fails if `rank` has a value there
  /// already.
  StatusOr<std::shared_ptr<Gather>> contribute(std::string_view what, int rank,
                                               std::string_view value);

  /// `seconds` have passed. Appends what is worth a warning; may reach a verdict.
  void tick(double seconds, std::vector<std::string> &warnings);

  bool hasVerdict() const { return !verdict_.ok(); }
  const Status &verdict() const { return verdict_; }
  /// The first wins. Returns the winner.
  const Status &condemn(const Status &reason);

  /// "rank 2 (host a, pid 17, in user code for 3.1 s)"
  std::string describe(int rank) const;
  std::string describe(const std::vector<int> &ranks) const;
  Status absent(std::string_view what, const Gather &gather, double seconds) const;

private:
  std::string identify(int rank, std::string_view more) const;
  bool inGather(int rank) const;
  Status checkPlaces(const std::vector<int> &ranks) const;
  void tickBootstrap(double seconds);
  void tickFrozen(double seconds, std::vector<std::string> &warnings);
  void tickWaits(double seconds, std::vector<std::string> &warnings);
  void tickGathers(double seconds, std::vector<std::string> &warnings);

  std::string job_;
  std::vector<Member> members_;
  int joined_ = 0, gone_ = 0, departures_ = 0, pauses_ = 0, culprit_ = -1;
  Table table_;
  std::map<std::string, std::shared_ptr<Gather>, std::less<>> gathers_;
  double stuckInGathers_ = 0.0;
  std::vector<std::string> refusals_;
  Status verdict_;
};

inline constexpr std::string_view kSaidGoodbye = " has left (said goodbye)";

/// "rank 3", "ranks 0, 2", "ranks 0-4, 7"
std::string rankList(const std::vector<int> &ranks);
std::string secondsText(double seconds);

/// For messages of ranks that waited in vain for others to join.
inline constexpr std::string_view kTimeToJoin = "the time to join is BAGUA_BOOTSTRAP_TIMEOUT_MS";

} // namespace bagua::rt
