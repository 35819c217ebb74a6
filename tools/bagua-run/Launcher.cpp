// Starts a command once per rank on this host, watches the processes, and leaves nothing behind.
//
// Two processes: the front, which the user sees and signals, and a supervisor below it, which
// starts the ranks. Each survives the other's SIGKILL long enough to end what is left: the kernel
// tells the supervisor of the front's death, and orphans of the supervisor become the front's
// children.
#include "Launcher.h"

#include "StoreServer.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <set>
#include <sstream>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

namespace bagua::run {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kKillPatience{1'000}; ///< Until killed processes must be gone.
constexpr size_t kLineBytesMax = 64 << 10;   ///< A longer output line is cut in pieces.

void say(const std::string &text) {
  std::string line = "bagua-run: " + text + "\n";
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

std::string ending(int status) {
  if (WIFEXITED(status))
    return fmt::format("exited with code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                     ::strsignal(WTERMSIG(status)));
}

int codeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

/// Every process below this one, zombies not counted.
std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  std::error_code ignored;
  for (const auto &entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos)
      continue;
    std::ifstream file(entry.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    size_t end = text.rfind(')');
    if (end == std::string::npos)
      continue;
    std::istringstream fields(text.substr(end + 1));
    char state = 0;
    pid_t parent = 0;
    if (fields >> state >> parent && state != 'Z')
      children.emplace(parent, std::atoi(name.c_str()));
  }
  std::vector<pid_t> found, open{::getpid()};
  while (!open.empty()) {
    auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto it = begin; it != end; ++it) {
      found.push_back(it->second);
      open.push_back(it->second);
    }
  }
  return found;
}

/// Kills and reaps everything below this process, orphans that were adopted included.
void killDescendants() {
  Clock::time_point deadline = Clock::now() + kKillPatience;
  do {
    for (pid_t pid : descendants())
      ::kill(pid, SIGKILL);
    int status = 0;
    pid_t reaped = 0;
    while ((reaped = ::waitpid(-1, &status, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD)
      return;
    std::this_thread::sleep_for(milliseconds(2));
  } while (Clock::now() < deadline);
}

uint16_t freePort() {
  int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  uint16_t port = 0;
  if (::bind(descriptor, reinterpret_cast<sockaddr *>(&address), bytes) == 0 &&
      ::getsockname(descriptor, reinterpret_cast<sockaddr *>(&address), &bytes) == 0)
    port = ntohs(address.sin_port);
  ::close(descriptor);
  return port;
}

/// Output of one rank on its way to ours, line by line.
struct Stream {
  int source = -1, target = -1;
  std::string prefix, pending;

  /// False at the end of the stream.
  bool forward() {
    char buffer[16384];
    ssize_t got = ::read(source, buffer, sizeof(buffer));
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
      return true;
    if (got <= 0) {
      if (!pending.empty())
        put(pending + "\n");
      pending.clear();
      return false;
    }
    pending.append(buffer, static_cast<size_t>(got));
    std::string lines;
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines += prefix + pending.substr(begin, end + 1 - begin);
    pending.erase(0, begin);
    if (pending.size() > kLineBytesMax) {
      lines += prefix + pending + "\n";
      pending.clear();
    }
    write(lines);
    return true;
  }

private:
  void put(const std::string &text) { write(prefix + text); }
  void write(std::string_view text) {
    while (!text.empty()) {
      ssize_t sent = ::write(target, text.data(), text.size());
      if (sent < 0 && errno == EINTR)
        continue;
      if (sent <= 0)
        return; // Our reader is gone; the ranks need not suffer from it.
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
};

class Supervisor {
public:
  explicit Supervisor(const LaunchOptions &options) : options_(options) {}

  int run() {
    sigset_t handled;
    sigemptyset(&handled);
    for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP})
      sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    signals_ = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);

    std::random_device random;
    job_ = fmt::format("bagua-run {} {:08x}{:08x}", ::getpid(), random(), random());
    auto server = rt::StoreServer::start({.world = options_.ranks, .job = job_});
    if (!server.ok()) {
      say(std::string(server.status().message()));
      return 1;
    }
    server_ = *std::move(server);
    int code = startAll() ? watch() : failure_;
    killDescendants();
    drain();
    return code;
  }

private:
  struct Rank {
    pid_t pid = -1;
    bool ended = false;
    int code = 0;
  };

  std::vector<std::string> environmentOf(int rank, uint16_t masterPort) const {
    std::map<std::string, std::string> variables;
    for (char **entry = environ; *entry; ++entry) {
      std::string_view text(*entry);
      size_t equals = text.find('=');
      // An outer torchrun's agent does not serve our ranks.
      if (equals != std::string_view::npos && !text.starts_with("TORCHELASTIC_"))
        variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
    }
    std::string world = std::to_string(options_.ranks), number = std::to_string(rank);
    for (const char *name : {"BAGUA_RANK", "BAGUA_LOCAL_RANK", "RANK", "LOCAL_RANK"})
      variables[name] = number;
    for (const char *name : {"BAGUA_WORLD", "BAGUA_LOCAL_SIZE", "WORLD_SIZE", "LOCAL_WORLD_SIZE"})
      variables[name] = world;
    variables["BAGUA_STORE"] = fmt::format("127.0.0.1:{}", server_->port());
    variables["BAGUA_STORE_HOST"] = "launcher";
    variables["BAGUA_JOB"] = job_;
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = std::to_string(masterPort);
    if (!variables.contains("OMP_NUM_THREADS")) {
      int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
      variables["OMP_NUM_THREADS"] = std::to_string(std::max(1, cores / options_.ranks));
    }
    if (options_.prefix) // Else Python keeps lines back, now that it writes into a pipe.
      variables.try_emplace("PYTHONUNBUFFERED", "1");
    std::vector<std::string> texts;
    for (const auto &[name, value] : variables)
      texts.push_back(name + "=" + value);
    return texts;
  }

  bool startAll() {
    uint16_t masterPort = freePort();
    ranks_.resize(static_cast<size_t>(options_.ranks));
    for (int rank = 0; rank < options_.ranks; ++rank)
      if (!start(rank, masterPort))
        return false;
    return true;
  }

  bool start(int rank, uint16_t masterPort) {
    std::vector<std::string> texts = environmentOf(rank, masterPort);
    std::vector<char *> environment, arguments;
    for (std::string &text : texts)
      environment.push_back(text.data());
    environment.push_back(nullptr);
    std::vector<std::string> command = options_.command;
    for (std::string &word : command)
      arguments.push_back(word.data());
    arguments.push_back(nullptr);
    int out[2] = {-1, -1}, error[2] = {-1, -1}, report[2] = {-1, -1};
    if (::pipe2(report, O_CLOEXEC) != 0 ||
        (options_.prefix && (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(error, O_CLOEXEC) != 0))) {
      say(fmt::format("cannot start rank {}: {}", rank, std::strerror(errno)));
      failure_ = 1;
      return false;
    }
    // A terminal would stop a rank that reads it from the background; the others share no input.
    bool input = rank == 0 && !::isatty(STDIN_FILENO);
    pid_t parent = ::getpid();
    pid_t pid = ::fork();
    if (pid == 0) { // Only async-signal-safe calls: the store has a thread.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent)
        ::_exit(1);
      ::setpgid(0, 0);
      if (!input)
        ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
      if (options_.prefix) {
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(error[1], STDERR_FILENO);
      }
      sigset_t none;
      sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      ::signal(SIGPIPE, SIG_DFL);
      ::execvpe(arguments[0], arguments.data(), environment.data());
      int reason = errno;
      (void)!::write(report[1], &reason, sizeof(reason));
      ::_exit(reason == ENOENT ? 127 : 126);
    }
    for (int descriptor : {out[1], error[1], report[1]})
      if (descriptor >= 0)
        ::close(descriptor);
    int reason = pid < 0 ? errno : 0;
    if (pid > 0)
      (void)!::read(report[0], &reason, sizeof(reason));
    ::close(report[0]);
    if (reason != 0) {
      say(fmt::format("cannot execute '{}': {}", options_.command[0], std::strerror(reason)));
      failure_ = reason == ENOENT ? 127 : 126;
      return false;
    }
    ::setpgid(pid, pid);
    ranks_[static_cast<size_t>(rank)].pid = pid;
    std::string prefix = fmt::format("[{}] ", rank);
    for (auto [source, target] : {std::pair{out[0], STDOUT_FILENO}, {error[0], STDERR_FILENO}})
      if (source >= 0) {
        ::fcntl(source, F_SETFL, O_NONBLOCK);
        streams_.push_back({source, target, prefix, ""});
      }
    return true;
  }

  /// Until every rank has ended, by itself or not. Returns the job's exit code.
  int watch() {
    while (running() > 0) {
      std::vector<pollfd> descriptors{{signals_, POLLIN, 0}};
      for (const Stream &stream : streams_)
        descriptors.push_back({stream.source, POLLIN, 0});
      int timeout = -1;
      if (deadline_) {
        auto left = std::chrono::ceil<milliseconds>(*deadline_ - Clock::now());
        timeout = static_cast<int>(std::max<int64_t>(0, left.count()));
      }
      int got = ::poll(descriptors.data(), descriptors.size(), timeout);
      if (got < 0 && errno != EINTR)
        break;
      if (deadline_ && Clock::now() >= *deadline_)
        escalate();
      if (got <= 0)
        continue;
      for (size_t i = streams_.size(); i-- > 0;)
        if (descriptors[i + 1].revents != 0 && !streams_[i].forward()) {
          ::close(streams_[i].source);
          streams_.erase(streams_.begin() + static_cast<ptrdiff_t>(i));
        }
      if (descriptors[0].revents & POLLIN)
        handleSignals();
    }
    if (signal_ != 0)
      return 128 + signal_;
    // Survivors may end before the rank that they mourn is reaped: the store knows who was first.
    int culprit = server_->culprit();
    return culprit >= 0 && ranks_[static_cast<size_t>(culprit)].code != 0
               ? ranks_[static_cast<size_t>(culprit)].code
               : failure_;
  }

  int running() const {
    return static_cast<int>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const Rank &rank) { return !rank.ended; }));
  }

  void handleSignals() {
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo == SIGCHLD)
        reap();
      else
        interrupt(static_cast<int>(info.ssi_signo));
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                [&](const Rank &rank) { return rank.pid == pid; });
      if (found == ranks_.end())
        continue; // An adopted orphan.
      found->ended = true;
      found->code = codeOf(status);
      int rank = static_cast<int>(found - ranks_.begin());
      server_->rankEnded(rank, ending(status));
      if (codeOf(status) == 0)
        continue;
      // After a signal of ours, ranks end as told.
      if (signal_ == 0 && !terminated_)
        say(fmt::format("rank {} (pid {}) {}", rank, pid, ending(status)));
      if (failure_ == 0)
        failure_ = codeOf(status);
      if (!deadline_)
        deadline_ = Clock::now() + options_.grace;
    }
  }

  void interrupt(int signal) {
    if (signal_ != 0) { // Asked twice: at once.
      killAll();
      return;
    }
    signal_ = signal;
    for (const Rank &rank : ranks_)
      if (!rank.ended)
        ::kill(rank.pid, signal);
    deadline_ = Clock::now() + options_.grace;
  }

  /// Time is up: terminate, then kill.
  void escalate() {
    if (terminated_)
      return killAll();
    terminated_ = true;
    std::vector<std::string> late;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!ranks_[rank].ended) {
        late.push_back(std::to_string(rank));
        ::kill(-ranks_[rank].pid, SIGTERM);
        ::kill(-ranks_[rank].pid, SIGCONT); // A stopped process takes no SIGTERM.
      }
    say(fmt::format("terminating rank{} {}", late.size() == 1 ? "" : "s", fmt::join(late, ", ")));
    deadline_ = Clock::now() + options_.termination;
  }

  void killAll() {
    for (const Rank &rank : ranks_)
      if (!rank.ended)
        ::kill(-rank.pid, SIGKILL);
    deadline_ = Clock::now() + kKillPatience; // Again, should one hang in the kernel.
  }

  /// The last lines of processes that are gone.
  void drain() {
    for (Stream &stream : streams_) {
      pollfd descriptor{stream.source, POLLIN, 0};
      while (::poll(&descriptor, 1, 0) > 0 && stream.forward()) {
      }
      ::close(stream.source);
    }
  }

  const LaunchOptions &options_;
  std::string job_;
  std::unique_ptr<rt::StoreServer> server_;
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  int signals_ = -1;
  int failure_ = 0; ///< Code of the first rank that failed.
  int signal_ = 0;  ///< That ended the job.
  bool terminated_ = false;
  std::optional<Clock::time_point> deadline_; ///< Of the next escalation.
};

volatile sig_atomic_t supervisorPid = 0;

void forwardSignal(int signal) {
  int saved = errno;
  if (supervisorPid > 0)
    ::kill(supervisorPid, signal);
  errno = saved;
}

} // namespace

int launch(const LaunchOptions &options) {
  // Orphans of our descendants come to us, not to init.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t forwarded, before;
  sigemptyset(&forwarded);
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&forwarded, signal);
  sigprocmask(SIG_BLOCK, &forwarded, &before);
  pid_t front = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) {
    say(fmt::format("cannot fork: {}", std::strerror(errno)));
    return 1;
  }
  if (pid == 0) {
    ::setpgid(0, 0); // The terminal's signals come through the front.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_NAME, "bagua-run-super");
    if (::getppid() != front)
      ::_exit(1);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    int code = Supervisor(options).run();
    std::fflush(nullptr);
    ::_exit(code);
  }
  supervisorPid = pid;
  struct sigaction action{};
  action.sa_handler = forwardSignal;
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(signal, &action, nullptr);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  supervisorPid = 0;
  if (!WIFEXITED(status))
    say(fmt::format("the supervisor {}", ending(status)));
  killDescendants();
  return codeOf(status);
}

} // namespace bagua::run
