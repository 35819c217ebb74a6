// Reads and writes schedule files: header, digest, FlatBuffer.
#include "bagua/Schedule.h"

#include "Expressions.h"
#include "Limits.h"

#include "absl/strings/str_cat.h"

#define XXH_INLINE_ALL
#include "xxhash.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace bagua::rt {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is read in place");

constexpr char kMagic[8] = {'B', 'A', 'G', 'U', 'A', 'S', 'C', 'H'};
/// Everything that came after the first readers: states, gates that know whether a step is finite,
/// kernel bytecode, Bucket and Pairing, costs of step time.
constexpr uint64_t kFeatureState = 1;
constexpr uint64_t kFeatureAsync = 2; ///< An async program.
constexpr uint64_t kKnownFeatures = kFeatureState | kFeatureAsync;

bool bodyNeedsState(const std::vector<std::unique_ptr<fb::StepT>> &steps) {
  return std::any_of(steps.begin(), steps.end(), [](const auto &step) {
    if (const fb::ForT *loop = step->action.AsFor())
      return bodyNeedsState(loop->body);
    if (const fb::IfT *branch = step->action.AsIf())
      return bodyNeedsState(branch->then) || bodyNeedsState(branch->otherwise);
    return step->if_finite; // Publish and State buffers need a state.
  });
}

/// Of a valid schedule.
uint64_t requiredFeatures(const fb::ScheduleT &schedule, const PoolFacts &facts) {
  bool state =
      !schedule.states.empty() ||
      std::any_of(schedule.expressions.begin(), schedule.expressions.end(),
                  [](const auto &expr) { return expr->op > fb::ExprOp::FPowInt; }) ||
      std::any_of(schedule.kernels.begin(), schedule.kernels.end(),
                  [](const auto &kernel) { return kernel->map || kernel->codec; }) ||
      std::any_of(schedule.programs.begin(), schedule.programs.end(), [&](const auto &program) {
        return facts.nodes[program->rounds].isStep || facts.nodes[program->wire_bytes].isStep ||
               bodyNeedsState(program->body);
      });
  bool async = std::any_of(schedule.programs.begin(), schedule.programs.end(),
                           [](const auto &program) { return program->event == fb::Event::Async; });
  return (state ? kFeatureState : 0) | (async ? kFeatureAsync : 0);
}

Digest digestOf(std::span<const uint8_t> file) {
  constexpr size_t begin = offsetof(FileHeader, digest), end = begin + sizeof(Digest);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, file.data(), begin);
  XXH3_128bits_update(&state, file.data() + end, file.size() - end);
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  Digest digest;
  static_assert(sizeof(canonical) == sizeof(Digest));
  std::memcpy(digest.data(), &canonical, sizeof(digest));
  return digest;
}

std::string hex(const Digest &digest) {
  std::string text;
  for (uint8_t byte : digest)
    absl::StrAppend(&text, absl::Hex(byte, absl::kZeroPad2));
  return text;
}

Status bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("schedule file: ", what));
}

/// Bounds what unpacking copies more than once: FlatBuffers lets many tables share one string or
/// one vector of numbers, so a small file could unpack to any size. (Shared tables count at each
/// use.)
class SharedDataMeter {
public:
  explicit SharedDataMeter(size_t bytesMax) : left_(bytesMax) {}

  bool schedule(const fb::Schedule &s) {
    return string(s.name()) && string(s.producer()) && numbers(s.dtypes()) && numbers(s.proof()) &&
           each(s.parameters(), [&](const fb::Parameter &p) { return string(p.name()); }) &&
           each(s.locations(), [&](const fb::Location &l) { return string(l.file()); }) &&
           each(s.kernels(),
                [&](const fb::Kernel &k) {
                  return string(k.name()) && map(k.map()) && codec(k.codec()) &&
                         each(k.attributes(),
                              [&](const fb::KernelAttribute &a) { return string(a.name()); });
                }) &&
           each(s.states(), [&](const fb::State &state) { return string(state.name()); }) &&
           each(s.programs(), [&](const fb::Program &p) { return program(p); });
  }

private:
  bool take(size_t bytes) {
    if (bytes > left_)
      return false;
    left_ -= bytes;
    return true;
  }
  bool string(const flatbuffers::String *text) { return !text || take(text->size()); }
  template <typename T> bool numbers(const flatbuffers::Vector<T> *vector) {
    return !vector || take(size_t{vector->size()} * sizeof(T));
  }
  bool map(const fb::MapCode *code) {
    return !code || (numbers(code->code()) && numbers(code->constants()) &&
                     numbers(code->outputs()) && numbers(code->broadcast()));
  }
  bool codec(const fb::CodecCode *code) {
    return !code || (map(code->stats()) && numbers(code->reductions()) && map(code->headers()) &&
                     map(code->encode()) && map(code->decode()));
  }
  template <typename T, typename F>
  bool each(const flatbuffers::Vector<flatbuffers::Offset<T>> *vector, F &&f) {
    if (vector)
      for (flatbuffers::uoffset_t i = 0; i < vector->size(); ++i)
        if (!f(*vector->Get(i)))
          return false;
    return true;
  }
  bool program(const fb::Program &p) {
    return string(p.name()) &&
           each(p.buffers(), [&](const fb::Buffer &b) { return string(b.name()); }) &&
           each(p.slots(), [&](const fb::Slots &s) { return string(s.name()); }) &&
           each(p.events(), [&](const fb::Events &e) { return string(e.name()); }) &&
           body(p.body());
  }
  bool body(const flatbuffers::Vector<flatbuffers::Offset<fb::Step>> *steps) {
    return each(steps, [&](const fb::Step &step) {
      if (const fb::For *loop = step.action_as_For())
        return body(loop->body());
      if (const fb::If *branch = step.action_as_If())
        return body(branch->then()) && body(branch->otherwise());
      if (const fb::Launch *launch = step.action_as_Launch())
        return numbers(launch->scalars());
      return true;
    });
  }

  size_t left_;
};

} // namespace

StatusOr<std::shared_ptr<const Schedule>> Schedule::fromBytes(std::span<const uint8_t> bytes) {
  return fromBytes(bytes, Options());
}

StatusOr<std::shared_ptr<const Schedule>> Schedule::fromBytes(std::span<const uint8_t> bytes,
                                                              const Options &options) {
  FileHeader header;
  if (bytes.size() < sizeof(header))
    return bad(absl::StrCat("has ", bytes.size(), " bytes, expected at least the ", sizeof(header),
                            " of its header: cut short?"));
  if (bytes.size() > kLimits.fileBytes)
    return bad(absl::StrCat("has ", bytes.size(), " bytes, expected at most ", kLimits.fileBytes));
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return bad("does not begin with BAGUASCH: not a schedule file");
  if (header.version == 0 || header.version > kFormatVersion)
    return bad(absl::StrCat("has format version ", header.version, ", this build reads 1 to ",
                            kFormatVersion, ": compile it anew or update bagua"));
  if (header.headerBytes != sizeof(header))
    return bad(
        absl::StrCat("has a header of ", header.headerBytes, " bytes, expected ", sizeof(header)));
  if (header.requiredFeatures & ~kKnownFeatures)
    return absl::UnimplementedError(absl::StrCat("schedule file: needs features 0x",
                                                 absl::Hex(header.requiredFeatures),
                                                 " that this build does not know: update bagua"));
  const uint64_t payloadBytes = bytes.size() - sizeof(header);
  if (header.payloadBytes != payloadBytes)
    return bad(absl::StrCat(
        "has ", payloadBytes, " payload bytes, expected ", header.payloadBytes,
        payloadBytes < header.payloadBytes
            ? std::string(": cut short?")
            : absl::StrCat(": too long by ", payloadBytes - header.payloadBytes, " bytes")));
  for (uint8_t byte : header.reserved)
    if (byte != 0)
      return bad("has a non-zero reserved byte in its header");
  if (Digest actual = digestOf(bytes); options.verifyDigest && actual != header.digest)
    return bad(
        absl::StrCat("has digest ", hex(actual), ", expected ", hex(header.digest), ": damaged"));

  // FlatBuffers reads numbers in place and wants them aligned.
  std::vector<uint8_t> payload(bytes.begin() + sizeof(header), bytes.end());
  flatbuffers::Verifier verifier(payload.data(), payload.size(), kLimits.tableDepth,
                                 kLimits.tables);
  if (!fb::VerifyScheduleBuffer(verifier))
    return bad("its FlatBuffer does not verify: damaged, or beyond the limits");
  const fb::Schedule *root = fb::GetSchedule(payload.data());
  if (!SharedDataMeter(2 * kLimits.fileBytes).schedule(*root))
    return bad("its names and lists unpack to more than twice the largest file");

  std::shared_ptr<Schedule> schedule(new Schedule);
  root->UnPackTo(&schedule->ir_);
  BAGUA_TRY(validate(schedule->ir_));
  schedule->digest_ = header.digest;
  return std::shared_ptr<const Schedule>(std::move(schedule));
}

StatusOr<std::shared_ptr<const Schedule>> Schedule::fromFile(const std::string &path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "rbe"),
                                                        &std::fclose);
  if (!file) {
    int error = errno;
    std::string what = absl::StrCat(path, ": cannot open: ", std::strerror(error));
    return error == ENOENT ? absl::NotFoundError(what) : absl::InvalidArgumentError(what);
  }
  // Read to the end rather than ask for a size: pipes and devices have none.
  std::vector<uint8_t> bytes;
  uint8_t chunk[1 << 16];
  while (size_t got = std::fread(chunk, 1, sizeof(chunk), file.get())) {
    bytes.insert(bytes.end(), chunk, chunk + got);
    if (bytes.size() > kLimits.fileBytes)
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": larger than ", kLimits.fileBytes, " bytes: not a schedule file"));
  }
  if (std::ferror(file.get()))
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read: ", std::strerror(errno)));
  auto schedule = fromBytes(bytes);
  if (!schedule.ok())
    return Status(schedule.status().code(), absl::StrCat(path, ": ", schedule.status().message()));
  return schedule;
}

std::string Schedule::digestHex() const { return hex(digest_); }

std::string Schedule::location(uint32_t index) const {
  if (index >= ir_.locations.size())
    return "unknown location";
  const fb::LocationT &location = *ir_.locations[index];
  return absl::StrCat(location.file.empty() ? "?" : location.file, ":", location.line, ":",
                      location.column);
}

const fb::ProgramT *Schedule::program(fb::Event event) const {
  for (const auto &program : ir_.programs)
    if (program->event == event)
      return program.get();
  return nullptr;
}

StatusOr<std::vector<uint8_t>> serialize(const fb::ScheduleT &schedule) {
  BAGUA_TRY(validate(schedule));
  BAGUA_ASSIGN(PoolFacts facts, poolFacts(schedule));
  flatbuffers::FlatBufferBuilder builder(4096);
  fb::FinishScheduleBuffer(builder, fb::Schedule::Pack(builder, &schedule));

  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kFormatVersion;
  header.headerBytes = sizeof(header);
  header.requiredFeatures = requiredFeatures(schedule, facts);
  header.payloadBytes = builder.GetSize();
  std::vector<uint8_t> bytes(sizeof(header) + builder.GetSize());
  if (bytes.size() > kLimits.fileBytes)
    return absl::InvalidArgumentError(absl::StrCat("schedule '", schedule.name, "': takes ",
                                                   bytes.size(), " bytes, expected at most ",
                                                   kLimits.fileBytes));
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), builder.GetBufferPointer(), builder.GetSize());
  header.digest = digestOf(bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

} // namespace bagua::rt
