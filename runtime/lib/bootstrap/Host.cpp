// Facts about this machine and its processes, read from /proc.
#include "Host.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bagua::rt {
namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

uint64_t inodeOf(const char *path) {
  struct stat status;
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

struct DirectoryCloser {
  void operator()(DIR *directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, DirectoryCloser>;

/// Inodes of the sockets that listen on `port`, as text, from a table like /proc/net/tcp.
void collectListeners(const std::string &table, uint16_t port, std::set<std::string> &inodes) {
  std::istringstream lines(readFile(table));
  std::string line;
  std::getline(lines, line); // The header.
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, field, inode;
    fields >> slot >> local >> remote >> state;
    for (int skipped = 0; skipped < 5; ++skipped)
      fields >> field;
    fields >> inode;
    size_t colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos)
      continue;
    unsigned value = 0;
    std::from_chars(local.data() + colon + 1, local.data() + local.size(), value, 16);
    if (value == port && inode != "0")
      inodes.insert(inode);
  }
}

struct ProcessStatus {
  std::string state;
  uint64_t startTime = 0;
};

/// Of /proc/PID/stat; empty if there is no such process.
ProcessStatus statusOf(int64_t pid) {
  std::string text = readFile("/proc/" + std::to_string(pid) + "/stat");
  size_t end = text.rfind(')'); // The command may contain spaces and parentheses.
  if (end == std::string::npos)
    return {};
  std::istringstream fields(text.substr(end + 1));
  ProcessStatus result;
  fields >> result.state; // Field 3 of proc(5), counted from 1.
  std::string field;
  for (int index = 4; index <= 22; ++index)
    fields >> field;
  std::from_chars(field.data(), field.data() + field.size(), result.startTime);
  return result;
}

} // namespace

std::string hostName() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0)
    return "unknown";
  return name;
}

std::string hostKey() {
  std::string boot = readFile("/proc/sys/kernel/random/boot_id");
  std::erase_if(boot, [](char c) { return std::isspace(static_cast<unsigned char>(c)); });
  return boot + "/" + std::to_string(inodeOf("/proc/thread-self/ns/net"));
}

uint64_t pidNamespace() { return inodeOf("/proc/self/ns/pid"); }

uint64_t processStartTime(int64_t pid) { return statusOf(pid).startTime; }

bool processHasEnded(int64_t pid, uint64_t startTime) {
  ProcessStatus now = statusOf(pid);
  return now.startTime != startTime || now.state == "Z" || now.state == "X";
}

std::string portHolder(uint16_t port) {
  std::set<std::string> inodes;
  collectListeners("/proc/net/tcp", port, inodes);
  collectListeners("/proc/net/tcp6", port, inodes);
  if (inodes.empty())
    return "";
  Directory processes(::opendir("/proc"));
  if (!processes)
    return "";
  while (const dirent *process = ::readdir(processes.get())) {
    if (!std::isdigit(static_cast<unsigned char>(process->d_name[0])))
      continue;
    std::string base = std::string("/proc/") + process->d_name;
    Directory descriptors(::opendir((base + "/fd").c_str()));
    if (!descriptors) // Another user's process, or one that has just ended.
      continue;
    while (const dirent *descriptor = ::readdir(descriptors.get())) {
      char target[64] = {};
      std::string link = base + "/fd/" + descriptor->d_name;
      if (::readlink(link.c_str(), target, sizeof(target) - 1) <= 0 ||
          std::strncmp(target, "socket:[", 8) != 0)
        continue;
      std::string inode(target + 8);
      inode.resize(inode.find(']') == std::string::npos ? 0 : inode.find(']'));
      if (!inodes.contains(inode))
        continue;
      std::string command = readFile(base + "/comm");
      while (!command.empty() && command.back() == '\n')
        command.pop_back();
      return std::string("pid ") + process->d_name + " (" + command + ")";
    }
  }
  return "";
}

DescriptorUse descriptorUse() {
  DescriptorUse use;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  use.limit = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT32_MAX));
  Directory descriptors(::opendir("/proc/self/fd"));
  if (!descriptors) { // There is not one left, or nobody can tell.
    use.open = errno == EMFILE || errno == ENFILE ? use.limit : 0;
    return use;
  }
  while (const dirent *entry = ::readdir(descriptors.get()))
    use.open += entry->d_name[0] != '.';
  --use.open; // The folder's own.
  return use;
}

} // namespace bagua::rt
