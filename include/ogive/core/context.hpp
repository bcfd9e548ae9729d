// L1: how to run: who works, and in which memory. The last parameter of every verb.
#pragma once

#include <ogive/core/memory.hpp>
#include <ogive/core/scratch.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>

namespace ogive {

/// What a fork-join pool is asked to run: `body(w)` once for each worker w, concurrently where it can.
class worker_body {
 public:
  template <class Body>
  explicit worker_body(const Body& body) noexcept
      : object_(&body), call_([](const void* object, int worker) { (*static_cast<const Body*>(object))(worker); }) {}
  void operator()(int worker) const { call_(object_, worker); }

 private:
  const void* object_;
  void (*call_)(const void*, int);
};

/// A member of a team of threads that enter a verb together: thread `ith` of `nth`, and how they wait for each other.
struct team {
  int ith = 0;
  int nth = 1;
  void (*barrier)(void* user) = nullptr;  ///< returns when all nth threads have called it
  void* user = nullptr;
};

/// How to run, and the scratch memory. Three kinds:
/// - serial (the default): the calling thread does everything;
/// - fork-join: a pool the caller names, or OpenMP (`ogive/core/openmp.hpp`), runs the workers;
/// - team: threads that the caller already has enter the verb together, each with a context of its own.
///
/// Kernels start no thread and allocate nothing. Scratch is owned and grows at the door of a verb, or, after
/// `reserve`, never again; or it is the caller's buffer, and a verb that needs more is refused. Results do not depend
/// on the kind, nor on the number of workers. One context per concurrent caller.
class context {
 public:
  /// Serial, with scratch of its own.
  context() noexcept = default;
  /// Serial, in the caller's buffer, aligned to 64 bytes.
  explicit context(std::span<std::byte> scratch) noexcept
      : scratch_(scratch.data()), capacity_(scratch.size()), owner_(owner::caller) {}

  /// `pool(n, body)` must call `body(w)` for w = 0 … n−1 and return when all have returned. The pool, which may be
  /// const, is kept by reference and must outlive the context.
  template <class Pool>
  static context fork_join(Pool&& pool, int workers) noexcept {
    static_assert(std::is_lvalue_reference_v<Pool> && !std::is_function_v<std::remove_reference_t<Pool>>,
                  "the context keeps the pool by reference: give it a variable that outlives the context");
    static_assert(std::is_invocable_v<Pool&, int, const worker_body&>,
                  "a pool is called as pool(n, body) with an int and a const worker_body&");
    using object_type = std::remove_reference_t<Pool>;
    context forked;
    forked.pool_ = std::addressof(pool);
    forked.run_pool_ = [](const void* object, int count, const worker_body& body) {
      (*static_cast<object_type*>(const_cast<void*>(object)))(count, body);
    };
    forked.workers_ = workers < 1 ? 1 : workers;
    return forked;
  }

  /// Member `team.ith` of a team; all members must call the same verbs with the same arguments.
  static context of(const team& member) noexcept {
    context joined;
    joined.team_ = member;
    return joined;
  }

  context(context&& other) noexcept { swap(other); }
  context& operator=(context&& other) noexcept {
    swap(other);
    return *this;
  }
  ~context() {
    release();
    while (kept_ != nullptr) {
      const kept* next = kept_->next;
      kept_->drop(kept_);
      kept_ = next;
    }
  }

  /// Threads that work inside this context: 1 for serial and for a team's member.
  int workers() const noexcept { return workers_; }
  /// Whether nobody else works on what it is given, a team's members neither.
  bool alone() const noexcept { return workers_ == 1 && team_.nth == 1; }

  /// Makes room now, so that no verb that needs at most this much allocates later. See `scratch_bytes`.
  void reserve(std::size_t bytes) {
    if (bytes <= capacity_) return;
    if (owner_ == owner::caller) {
      raise(status(status_code::scratch) << "ogive::context: " << static_cast<index_t>(bytes)
                                         << " bytes of scratch are needed, the caller's buffer has "
                                         << static_cast<index_t>(capacity_));
    }
    release();
    scratch_ = static_cast<std::byte*>(core::allocate(bytes));
    capacity_ = bytes;
  }
  std::size_t capacity() const noexcept { return capacity_; }

  /// The context's own T, made by default at the first call: tables and plans that later calls want again. Only the
  /// door of a verb, `prepare` and `reserve` may call it and let it grow, as only they allocate; kernels get what they
  /// need from there and read it, or have one for each worker.
  template <class T>
  T& cache() {
    struct holder : kept {
      T held{};
    };
    static constexpr char tag = 0;
    for (const kept* one = kept_; one != nullptr; one = one->next) {
      if (one->tag == &tag) return const_cast<holder*>(static_cast<const holder*>(one))->held;
    }
    auto* made = new holder;
    made->tag = &tag;
    made->next = kept_;
    made->drop = [](const kept* one) noexcept { delete static_cast<const holder*>(one); };
    kept_ = made;
    return made->held;
  }
  bool owns_scratch() const noexcept { return owner_ == owner::self; }

  /// Whether tasks flush subnormals to zero while they run (the caller's mode comes back afterwards): a state that
  /// has decayed to nothing otherwise costs some fifty times as much.
  bool flush() const noexcept { return flush_; }
  context& flush(bool on) noexcept {
    flush_ = on;
    return *this;
  }

  /// Runs `body(task, arena)`, or `body(task, arena, worker)`, for tasks 0 … count−1, each worker in its own `bytes` of
  /// scratch. The engines' own entry: `reserve(workers() · bytes)` has happened.
  template <class Body>
  void run(index_t count, std::size_t bytes, const Body& body) noexcept {
    const auto call = [&](index_t task, const arena& mine, int worker) {
      if constexpr (std::is_invocable_v<const Body&, index_t, arena, int>) {
        body(task, mine, worker);
      } else {
        body(task, mine);
      }
    };
    if (run_pool_ == nullptr || workers_ == 1 || count <= 1) {
      for (index_t task = team_.ith; task < count; task += team_.nth) call(task, scratch(0, bytes), 0);
      if (team_.barrier != nullptr) team_.barrier(team_.user);
      return;
    }
    std::atomic<index_t> ticket{0};
    const auto work = [&](int worker) {
      const arena mine = scratch(worker, bytes);
      for (index_t task = ticket.fetch_add(1); task < count; task = ticket.fetch_add(1)) call(task, mine, worker);
    };
    run_pool_(pool_, static_cast<int>(std::min<index_t>(workers_, count)), worker_body(work));
  }

  /// The memory of worker `w` in runs with so many bytes for each: what a run leaves there is there for the next one. A
  /// team's members share none, each has `workers()` = 1.
  arena scratch(index_t w, std::size_t bytes) const noexcept {
    return {scratch_ + static_cast<std::size_t>(w) * bytes, bytes};
  }

 private:
  enum class owner { self, caller };

  /// One of the objects of `cache`, whose type is known to `drop`.
  struct kept {
    const void* tag = nullptr;
    const kept* next = nullptr;
    void (*drop)(const kept*) noexcept = nullptr;
  };

  void release() noexcept {
    if (owner_ == owner::self) core::release(scratch_, capacity_);
    scratch_ = nullptr;
    capacity_ = 0;
  }
  void swap(context& other) noexcept {
    std::swap(scratch_, other.scratch_);
    std::swap(capacity_, other.capacity_);
    std::swap(owner_, other.owner_);
    std::swap(pool_, other.pool_);
    std::swap(run_pool_, other.run_pool_);
    std::swap(workers_, other.workers_);
    std::swap(team_, other.team_);
    std::swap(flush_, other.flush_);
    std::swap(kept_, other.kept_);
  }

  std::byte* scratch_ = nullptr;
  std::size_t capacity_ = 0;
  owner owner_ = owner::self;
  const void* pool_ = nullptr;
  void (*run_pool_)(const void*, int, const worker_body&) = nullptr;
  int workers_ = 1;
  ogive::team team_{};
  bool flush_ = true;
  const kept* kept_ = nullptr;
};

/// The context a verb uses when none is given: serial, one per thread.
inline context& default_context() noexcept {
  thread_local context mine;
  return mine;
}

}  // namespace ogive
