// Runs a group of real processes: the test binary executes itself once per rank.
#include "RankGroup.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <poll.h>
#include <set>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace bagua::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char *kProgramVariable = "BAGUA_TEST_RANK_PROGRAM";
constexpr const char *kArgumentPrefix = "BAGUA_TEST_ARGUMENT_";
constexpr int kReadyDescriptor = 3; ///< Fixed in the child, so that it needs no variable.

std::map<std::string, RankProgram> &programs() {
  static auto *all = new std::map<std::string, RankProgram>;
  return *all;
}

int variable(const char *name, int otherwise) {
  const char *text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

} // namespace

RankProgramRegistration::RankProgramRegistration(const char *name, RankProgram program) {
  programs()[name] = program;
}

std::string RankContext::argument(const std::string &name, const std::string &otherwise) const {
  auto found = arguments_.find(name);
  return found == arguments_.end() ? otherwise : found->second;
}

void RankContext::ready(const std::string &mark) const {
  std::string line = mark + "\n";
  if (::write(kReadyDescriptor, line.data(), line.size()) < 0)
    std::perror("the test is gone");
}

std::string RankContext::hear() const {
  std::string line;
  char c = 0;
  while (::read(STDIN_FILENO, &c, 1) == 1 && c != '\n')
    line += c;
  return line;
}

int runRankProgram() {
  const char *name = std::getenv(kProgramVariable);
  if (!name)
    return -1;
  auto found = programs().find(name);
  if (found == programs().end()) {
    std::fprintf(stderr, "no rank program '%s'\n", name);
    return 127;
  }
  ::fcntl(kReadyDescriptor, F_SETFD, FD_CLOEXEC);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  RankContext context;
  // bagua-run may be the one who starts the ranks.
  context.rank_ = variable("BAGUA_TEST_RANK", variable("BAGUA_RANK", 0));
  context.world_ = variable("BAGUA_TEST_WORLD", variable("BAGUA_WORLD", 1));
  if (const char *store = std::getenv("BAGUA_TEST_STORE"))
    context.store_ = store;
  for (char **entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, kArgumentPrefix, std::strlen(kArgumentPrefix)) == 0) {
      std::string text = *entry + std::strlen(kArgumentPrefix);
      context.arguments_[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
    }
  return found->second(context);
}

struct RankGroup::Impl {
  struct Process {
    pid_t pid = -1;
    int pidfd = -1, ready = -1, input = -1, log = -1;
    int code = -1;
    bool ended = true;
    std::string pending; ///< Of the ready pipe: an unfinished line.
    std::set<std::string> marks;
  };
  std::vector<Process> processes;
  Clock::time_point deadline;
  std::string store;
  bool expired = false;

  int millisecondsLeft() const {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    return static_cast<int>(std::max<int64_t>(0, left.count()));
  }

  void killAll() {
    for (Process &process : processes)
      if (process.pid > 0 && !process.ended)
        ::kill(-process.pid, SIGKILL);
  }

  void expire(const std::string &what) {
    if (expired)
      return;
    expired = true;
    std::string logs;
    for (size_t rank = 0; rank < processes.size(); ++rank)
      logs += "--- rank " + std::to_string(rank) + "\n" + logOf(processes[rank]);
    killAll();
    ADD_FAILURE() << "the deadline of the ranks passed while waiting for " << what << "\n" << logs;
  }

  static std::string logOf(const Process &process) {
    std::string text;
    char buffer[4096];
    off_t offset = 0;
    for (ssize_t got;
         process.log >= 0 && (got = ::pread(process.log, buffer, sizeof(buffer), offset)) > 0;
         offset += got)
      text.append(buffer, static_cast<size_t>(got));
    return text;
  }

  void collect(Process &process) {
    char buffer[512];
    ssize_t got = ::read(process.ready, buffer, sizeof(buffer));
    if (got <= 0) {
      ::close(process.ready);
      process.ready = -1;
      return;
    }
    process.pending.append(buffer, static_cast<size_t>(got));
    for (size_t end; (end = process.pending.find('\n')) != std::string::npos;) {
      process.marks.insert(process.pending.substr(0, end));
      process.pending.erase(0, end + 1);
    }
  }

  /// True when the process has ended; waits for it at most until the deadline.
  bool await(Process &process, int timeoutMs) {
    if (process.ended)
      return true;
    pollfd descriptor{process.pidfd, POLLIN, 0};
    while (::poll(&descriptor, 1, timeoutMs) < 0 && errno == EINTR) {
    }
    if (!(descriptor.revents & POLLIN))
      return false;
    int status = 0;
    if (::waitpid(process.pid, &status, 0) != process.pid)
      return false;
    process.ended = true;
    process.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }
};

RankGroup::RankGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankGroup::RankGroup(RankGroup &&) noexcept = default;

RankGroup::~RankGroup() {
  if (!impl_)
    return;
  for (Impl::Process &process : impl_->processes) {
    if (process.pid <= 0)
      continue;
    // The group may hold forked children of a rank that has ended.
    ::kill(-process.pid, SIGKILL);
    impl_->await(process, -1);
    for (int descriptor : {process.pidfd, process.ready, process.input, process.log})
      if (descriptor >= 0)
        ::close(descriptor);
  }
}

void RankGroup::waitReady(int rank, const std::string &mark) {
  Impl::Process &process = impl_->processes[rank];
  while (!process.marks.contains(mark)) {
    if (process.ready < 0) {
      ADD_FAILURE() << "rank " << rank << " ended before it came to '" << mark << "'\n"
                    << log(rank);
      return;
    }
    pollfd descriptor{process.ready, POLLIN, 0};
    int got = ::poll(&descriptor, 1, impl_->millisecondsLeft());
    if (got == 0)
      return impl_->expire("rank " + std::to_string(rank) + " to come to '" + mark + "'");
    if (got > 0)
      impl_->collect(process);
  }
}

void RankGroup::waitReady(const std::string &mark) {
  for (size_t rank = 0; rank < impl_->processes.size(); ++rank)
    if (impl_->processes[rank].pid > 0)
      waitReady(static_cast<int>(rank), mark);
}

void RankGroup::tell(int rank, const std::string &line) {
  std::string text = line + "\n";
  // A rank that has ended hears nothing; its exit code says what happened.
  (void)!::send(impl_->processes[rank].input, text.data(), text.size(), MSG_NOSIGNAL);
}

void RankGroup::tellAll(const std::string &line) {
  for (size_t rank = 0; rank < impl_->processes.size(); ++rank)
    if (impl_->processes[rank].pid > 0)
      tell(static_cast<int>(rank), line);
}

void RankGroup::kill(int rank, int signal) {
  ASSERT_EQ(::kill(impl_->processes[rank].pid, signal), 0) << std::strerror(errno);
}

int RankGroup::exitCode(int rank) {
  Impl::Process &process = impl_->processes[rank];
  if (!impl_->await(process, impl_->millisecondsLeft())) {
    impl_->expire("rank " + std::to_string(rank) + " to end");
    impl_->await(process, -1);
    return -1;
  }
  return process.code;
}

bool RankGroup::running(int rank) { return !impl_->await(impl_->processes[rank], 0); }
pid_t RankGroup::pid(int rank) const { return impl_->processes[rank].pid; }
std::string RankGroup::log(int rank) const { return Impl::logOf(impl_->processes[rank]); }
const std::string &RankGroup::store() const { return impl_->store; }

RankGroup spawn(const std::string &program, const SpawnOptions &options) {
  auto impl = std::make_unique<RankGroup::Impl>();
  impl->deadline = Clock::now() + options.deadline;
  impl->store = options.store.empty() ? "127.0.0.1:" + std::to_string(freePort()) : options.store;
  impl->processes.resize(static_cast<size_t>(options.worldSize));
  for (int rank = 0; rank < options.worldSize; ++rank) {
    RankGroup::Impl::Process &process = impl->processes[static_cast<size_t>(rank)];
    if (std::count(options.absent.begin(), options.absent.end(), rank))
      continue;
    // Nothing of an outer launcher may leak in.
    std::map<std::string, std::string> variables;
    for (char **entry = environ; *entry; ++entry) {
      std::string text = *entry;
      std::string name = text.substr(0, text.find('='));
      bool launcher = name.starts_with("BAGUA_") || name.starts_with("OMPI_") ||
                      name.starts_with("PMI") || name.starts_with("SLURM_") ||
                      name.starts_with("TORCHELASTIC_") || name == "RANK" || name == "WORLD_SIZE" ||
                      name == "LOCAL_RANK" || name == "MASTER_ADDR";
      if (!launcher || name == "BAGUA_LOG")
        variables[name] = text.substr(text.find('=') + 1);
    }
    variables[kProgramVariable] = program;
    variables["BAGUA_TEST_RANK"] = std::to_string(rank);
    variables["BAGUA_TEST_WORLD"] = std::to_string(options.worldSize);
    variables["BAGUA_TEST_STORE"] = impl->store;
    for (const auto &[name, value] : options.arguments)
      variables[kArgumentPrefix + name] = value;
    for (const auto &[name, value] : options.environment)
      variables[name] = value;
    std::vector<std::string> texts;
    for (const auto &[name, value] : variables)
      texts.push_back(name + "=" + value);
    std::vector<char *> environment;
    for (std::string &text : texts)
      environment.push_back(text.data());
    environment.push_back(nullptr);
    char self[] = "/proc/self/exe";
    std::string name = program + "[" + std::to_string(rank) + "]";
    char *arguments[] = {name.data(), nullptr};

    int ready[2], input[2];
    if (::pipe2(ready, O_CLOEXEC) != 0 ||
        ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0) {
      ADD_FAILURE() << "pipe: " << std::strerror(errno);
      break;
    }
    process.log = ::memfd_create("rank-log", MFD_CLOEXEC);
    process.pid = ::fork();
    if (process.pid == 0) { // Only async-signal-safe calls: the test may have threads.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setpgid(0, 0);
      ::dup2(input[1], STDIN_FILENO);
      ::dup2(process.log, STDOUT_FILENO);
      ::fcntl(STDOUT_FILENO, F_SETFL, O_APPEND);
      ::dup2(STDOUT_FILENO, STDERR_FILENO);
      if (ready[1] == kReadyDescriptor)
        ::fcntl(kReadyDescriptor, F_SETFD, 0);
      else
        ::dup2(ready[1], kReadyDescriptor);
      ::execve(self, arguments, environment.data());
      ::_exit(127);
    }
    ::setpgid(process.pid, process.pid);
    process.ended = false;
    process.pidfd = static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0));
    process.ready = ready[0];
    process.input = input[0];
    ::close(ready[1]);
    ::close(input[1]);
  }
  return RankGroup(std::move(impl));
}

int exitCodeFor(absl::StatusCode code) {
  return code == absl::StatusCode::kOk ? 0 : 10 + static_cast<int>(code);
}

int exitCodeFor(const absl::Status &status) {
  if (!status.ok())
    std::cerr << status << std::endl;
  return exitCodeFor(status.code());
}

int freePort() {
  int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  int port = 0;
  if (::bind(descriptor, reinterpret_cast<sockaddr *>(&address), length) == 0 &&
      ::getsockname(descriptor, reinterpret_cast<sockaddr *>(&address), &length) == 0)
    port = ntohs(address.sin_port);
  ::close(descriptor);
  return port;
}

} // namespace bagua::test
