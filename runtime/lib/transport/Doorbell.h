// The one Doorbell: a futex word, private or in a shared page.
#pragma once

#include "bagua/Transport.h"

namespace bagua::rt {

/// Protocol of the word. Bit 0 "armed": the owner will look at its word before it sleeps, so a ring
/// must change it. Bit 1 "sleeping": the owner is inside futex_wait. The rest counts rings that
/// found the word armed. A ring on a word that is not armed is one load: the owner has not asked
/// since, and value() arms the word before the poll that would find what the ring stands for.
class DoorbellWord {
public:
  /// Rings; `shared`: the word lies in memory shared between processes.
  static void ring(std::atomic<uint32_t> &word, bool shared);
};

class FutexDoorbell final : public Doorbell {
public:
  /// `owner` keeps the word's memory; `descriptor` (or -1) is its memfd, closed with the doorbell.
  FutexDoorbell(std::atomic<uint32_t> *word, std::shared_ptr<void> owner, int descriptor);
  ~FutexDoorbell() override;

  void ring() override;
  uint32_t value() const override;
  void wait(uint32_t seen, std::chrono::nanoseconds timeout) override;
  void setSleepHook(SleepHook *hook) override { hook_ = hook; }

  /// memfd of one page whose first word is the doorbell; -1 if private.
  int descriptor() const { return descriptor_; }
  std::atomic<uint32_t> &word() const { return *word_; }
  const std::shared_ptr<void> &owner() const { return owner_; }

private:
  std::atomic<uint32_t> *word_;
  std::shared_ptr<void> owner_;
  int descriptor_;
  SleepHook *hook_ = nullptr;
};

} // namespace bagua::rt
