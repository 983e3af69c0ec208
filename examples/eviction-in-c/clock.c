/* CLOCK as an eviction policy in C, to show that the interface is not Rust's alone.
 *
 * What crosses is laid down by the canonical ABI of the component model: a list is a pointer and a
 * length, a record with more than one word is returned by a pointer to it, and the host asks
 * cabi_realloc for room before it passes a list. wit/README.md has the packed events. There is no C
 * library here, and no memory is ever given back: arrays grow by doubling.
 *
 * The policy (Corbato, "A paging experiment with the Multics system", 1968): residents stand in a ring; the
 * hand takes the first that was not hit since it passed last. Slots are used densely, so what is
 * known of an object lies in an array at its slot.
 *
 *   clang --target=wasm32 -O2 -ffreestanding -nostdlib -Wl,--no-entry -o clock.module.wasm clock.c
 *   portcullis policy build clock.module.wasm --kind eviction --output clock.wasm
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define EXPORT(name) __attribute__((export_name(name)))
#define PAGE_BYTES 65536u
/* Words of one event. */
#define STRIDE 3

/* --- memory ------------------------------------------------------------------------------------ */

extern u8 __heap_base;
static u32 heap_next;

static void *allocate(u32 bytes)
{
	if (heap_next == 0)
		heap_next = (u32)&__heap_base;
	u32 start = (heap_next + 15) & ~15u;
	u32 end = start + bytes;
	u32 have = __builtin_wasm_memory_size(0) * PAGE_BYTES;
	if (end < start)
		__builtin_trap();
	if (end > have) {
		u32 pages = (end - have + PAGE_BYTES - 1) / PAGE_BYTES;
		/* Denied by the host: a trap, and its own policy takes over. */
		if (__builtin_wasm_memory_grow(0, pages) == (unsigned long)-1)
			__builtin_trap();
	}
	heap_next = end;
	return (void *)start;
}

/* The same array with room for more; its contents move. */
static void *grown(const void *old, u32 old_bytes, u32 new_bytes)
{
	u8 *new = allocate(new_bytes);
	for (u32 at = 0; at < old_bytes; at++)
		new[at] = ((const u8 *)old)[at];
	for (u32 at = old_bytes; at < new_bytes; at++)
		new[at] = 0;
	return new;
}

/* Room for what the host passes. It is ours until the call ends, and used again for the next. */
static void *passed;
static u32 passed_bytes;

EXPORT("cabi_realloc")
void *cabi_realloc(void *old, u32 old_bytes, u32 align, u32 bytes)
{
	(void)old, (void)old_bytes, (void)align;
	if (bytes > passed_bytes) {
		passed_bytes = bytes * 2;
		passed = allocate(passed_bytes);
	}
	return passed;
}

/* --- what the policy knows --------------------------------------------------------------------- */

/* By slot. */
struct object {
	/* The generation that is resident, or 0. */
	u32 generation;
	u8 is_hit;
	/* It is in the ring, and not proposed. */
	u8 is_waiting;
};

static struct object *objects;
static u32 slots;

/* Ids in the order in which the hand passes, some of which have left. */
static u64 *ring;
static u32 ring_room, ring_first, ring_len;
static u32 waiting;

static u64 *victims;
static u32 victims_max;

static struct object *find(u64 id)
{
	u32 slot = (u32)(id >> 32);
	if (slot >= slots || objects[slot].generation != (u32)id || (u32)id == 0)
		return 0;
	return &objects[slot];
}

static void push(u64 id)
{
	if (ring_len == ring_room) {
		u32 room = ring_room ? ring_room * 2 : 1024;
		u64 *new = allocate(room * sizeof *new);
		for (u32 at = 0; at < ring_len; at++)
			new[at] = ring[(ring_first + at) & (ring_room - 1)];
		ring = new;
		ring_room = room;
		ring_first = 0;
	}
	ring[(ring_first + ring_len++) & (ring_room - 1)] = id;
}

static u64 pop(void)
{
	u64 id = ring[ring_first];
	ring_first = (ring_first + 1) & (ring_room - 1);
	ring_len--;
	return id;
}

/* Drops those that have left where they outnumber the others. */
static void tidy(void)
{
	if (ring_len <= 64 + 2 * waiting)
		return;
	for (u32 left = ring_len; left > 0; left--) {
		u64 id = pop();
		struct object *object = find(id);
		if (object && object->is_waiting)
			push(id);
	}
}

static void insert(u64 id)
{
	u32 slot = (u32)(id >> 32);
	if (slot >= slots) {
		u32 more = slots ? slots : 1024;
		while (slot >= more)
			more *= 2;
		objects = grown(objects, slots * sizeof *objects, more * sizeof *objects);
		slots = more;
	}
	objects[slot].generation = (u32)id;
	objects[slot].is_hit = 0;
	objects[slot].is_waiting = 1;
	waiting++;
	push(id);
}

/* --- the interface ----------------------------------------------------------------------------- */

struct text {
	const char *bytes;
	u32 len;
};

#define TEXT(literal) { literal, sizeof literal - 1 }

EXPORT("portcullis:policy/control@0.1.0#describe")
const void *describe(void)
{
	static const struct text info[2] = { TEXT("clock-in-c"), TEXT("0.1.0") };
	return info;
}

EXPORT("portcullis:policy/control@0.1.0#init")
const void *init(u64 capacity_bytes, u64 seed, u32 max_events, u32 max_answers, const u8 *config,
		 u32 config_len)
{
	static const struct {
		u32 is_error;
		struct text error;
	} fine, refused = { 1, TEXT("clock-in-c takes no configuration") };

	(void)capacity_bytes, (void)seed, (void)max_events, (void)config;
	if (config_len > 0)
		return &refused;
	victims_max = max_answers;
	victims = allocate(max_answers * sizeof *victims);
	return &fine;
}

EXPORT("portcullis:policy/eviction@0.1.0#on-events")
void on_events(u64 now_ms, const u64 *words, u32 words_len)
{
	(void)now_ms;
	for (u32 at = 0; at + STRIDE <= words_len; at += STRIDE) {
		u64 id = words[at];
		struct object *object = find(id);
		switch ((u8)words[at + 2]) {
		case 0: /* insert */
			insert(id);
			break;
		case 1: /* hit */
			if (object)
				object->is_hit = 1;
			break;
		case 2: /* remove */
			if (object) {
				waiting -= object->is_waiting;
				object->generation = 0;
				tidy();
			}
			break;
		case 3: /* spare: a resident like any other again */
			if (object && !object->is_waiting) {
				object->is_waiting = 1;
				waiting++;
				push(id);
			}
			break;
		default: /* of a later version */
			break;
		}
	}
}

EXPORT("portcullis:policy/eviction@0.1.0#propose")
const void *propose(u64 now_ms, u32 want)
{
	static struct {
		const u64 *ids;
		u32 len;
	} answer;

	(void)now_ms;
	answer.ids = victims;
	answer.len = 0;
	if (want > victims_max)
		want = victims_max;
	/* Twice around at most: the first time each hit is taken back. */
	for (u32 steps = 2 * ring_len; steps > 0 && answer.len < want && ring_len > 0; steps--) {
		u64 id = pop();
		struct object *object = find(id);
		if (!object || !object->is_waiting)
			continue;
		if (object->is_hit) {
			object->is_hit = 0;
			push(id);
			continue;
		}
		object->is_waiting = 0;
		waiting--;
		victims[answer.len++] = id;
	}
	return &answer;
}
